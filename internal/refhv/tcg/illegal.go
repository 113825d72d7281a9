package tcg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"pvabi/internal/remote"
)

// Code that is not the kernel's image, a module's, is found out when a CPU first comes to an HVCL in
// it. That raises an exception on a machine without a hypervisor, and there is a breakpoint at the
// exception's vector. Nothing but the exception has happened to the CPU then, so that a return from it
// takes the CPU back to the HVCL, which has a breakpoint by then.

const (
	// ertn is the instruction that returns from an exception (LoongArch Reference Manual volume 1,
	// "ERTN").
	ertn = 0x06483800
	// illegal is the number of the exception (the same, "Exception codes", INE), and vectorSize how
	// far the vectors of two exceptions are apart (arch/loongarch/include/asm/setup.h, VECSIZE, Linux
	// 7.2).
	illegal    = 0xd
	vectorSize = 0x200
	// privilege are the bits of PRMD with the privilege level that the exception came from.
	privilege = 3
	// around is how much code before and after an HVCL is looked at for others: a module's is one
	// piece of memory.
	around = 32 << 10
	// portion is how much of it is read at a time.
	portion = 1 << 10
)

// controlRegister finds a register among what the monitor's "info registers" prints.
func controlRegister(text, name string) (uint64, error) {
	m := regexp.MustCompile(`\b` + name + ` +([0-9a-f]+)\b`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("QEMU's monitor does not print %s", name)
	}
	return strconv.ParseUint(m[1], 16, 64)
}

// learn has the vector of a CPU get a breakpoint, once the CPU has one: when it makes its first call it
// does.
func (g *stopped) learn(cpu int) error {
	if g.vectors[cpu] != 0 {
		return nil
	}
	text, err := g.qmp.Monitor(cpu, "info registers")
	if err != nil {
		return err
	}
	entry, err := controlRegister(text, "EENTRY")
	if err != nil {
		return err
	}
	vector := entry + illegal*vectorSize
	known := false
	for _, v := range g.vectors {
		known = known || v == vector
	}
	g.vectors[cpu] = vector
	if known {
		return nil
	}
	return g.gdb.Break(vector)
}

// raised looks at what has raised the exception at whose vector a CPU is, and gives it back to the guest
// if it is no HVCL of the kernel's.
func (g *stopped) raised(ctx context.Context, cpu int, vector uint64) error {
	text, err := g.qmp.Monitor(cpu, "info registers")
	if err != nil {
		return err
	}
	var values [3]uint64
	for i, name := range []string{"ERA", "PRMD", "BADI"} {
		if values[i], err = controlRegister(text, name); err != nil {
			return err
		}
	}
	at, mode, code := values[0], values[1], values[2]
	if s, is := decode(at, uint32(code)); !is || s.Kind != HVCL || mode&privilege != 0 {
		return g.step(ctx, cpu, Site{Address: vector})
	}
	if err := g.look(at); err != nil {
		return err
	}
	back, ok := g.kernel.find(ertn)
	if !ok {
		return errors.New("the kernel has no return from an exception")
	}
	return g.gdb.SetRegister(registerPC, back)
}

// look takes what may leave the guest in the code around an address.
func (g *stopped) look(address uint64) error {
	first := (address - around) &^ (portion - 1)
	for from := first; from < address+around; from += portion {
		code, err := g.gdb.Memory(from, portion)
		var refused *remote.Refused
		if errors.As(err, &refused) {
			continue // nothing is there
		}
		if err != nil {
			return err
		}
		for at := 0; at+length <= len(code); at += length {
			if s, is := decode(from+uint64(at), binary.LittleEndian.Uint32(code[at:])); is {
				if err := g.add(s); err != nil {
					return err
				}
				if s.Kind != IDLE {
					continue
				}
				if err := g.add(Site{Address: s.Address + length, Kind: awake}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// find returns the address of an instruction in the kernel's code.
func (k *Kernel) find(instruction uint32) (uint64, bool) {
	for at := 0; at+length <= len(k.Text); at += length {
		if binary.LittleEndian.Uint32(k.Text[at:]) == instruction {
			return k.Base + uint64(at), true
		}
	}
	return 0, false
}
