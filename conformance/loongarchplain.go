package conformance

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"pvabi/abi"
	"pvabi/arch/loong64"
	"pvabi/conformance/microvm"
)

// LoongArchPlain are the suites for a machine without a hypervisor, whose CPUs are those of the Linux of a
// release: that there is nothing for a guest to find, which is i's part, and that the kernel uses
// nothing. Before that, the kernel's CPUs must have sent each other messages.
func LoongArchPlain(i Implementer, open func(microvm.Config) (microvm.Machine, error), release string, k GuestKernel) []*Suite {
	table := abi.LoongArch()
	offers := func(abi.Feature) (bool, error) { return false, nil }
	return []*Suite{
		{ABI: table, ISA: loong64.ISA, Open: open, Implementer: i, Deviations: Deviations, Offers: offers, Looks: Looks, Native: table.Conventions[0].Instructions[0].Mnemonic, Checks: []Check{loongPlain()}},
		{ABI: table, Implementer: Implementer{Name: Linux, Version: release}, Deviations: Deviations, Guest: k, Looks: Looks, Checks: []Check{loongUsesNothing(k)}},
	}
}

// LoongArchPlainRules are the rules that LoongArchPlain has results for, in their order.
func LoongArchPlainRules() (rules []abi.Rule) {
	for _, s := range LoongArchPlain(Implementer{}, nil, "", nil) {
		rules = append(rules, s.Rules()...)
	}
	return rules
}

// loongPlain: a machine whose CPUs have no signature has nothing else.
func loongPlain() Check {
	return Check{Rules: []string{nothingRule}, Run: func(t *T) {
		c := loong{plain: microvm.Config{CPUs: 3}}
		signature := t.run(t.Open(c.plain), caller, discover(t.ABI.Word("signature-word"), 0))[0].Regs[t.ISA.Register("r4")]
		if signature != 0 {
			t.Absent(nothingRule, fmt.Sprintf("there is a signature, %#x", signature))
			return
		}
		t.loongNothing(c, []string{nothingRule})
	}}
}

// What the kernel's log says of what it does with the ABI, and of a call that it makes where there is nobody
// to answer (arch/loongarch/kernel/paravirt.c, pv_time_init; arch/loongarch/kernel/traps.c, do_ri; Linux 7.2).
const (
	saysSteal   = "paravirt steal-time"
	saysIllegal = "Reserved instruction in kernel code"
)

// loongUsesNothing: a kernel that finds no hypervisor. The controls are that its CPUs sent each other
// messages, and that its log can be read.
func loongUsesNothing(k GuestKernel) Check {
	const (
		needs    = "guest/needs-hypervisor-bit"
		messages = "guest/ipi-if-offered"
		areas    = "guest/notify-if-offered"
	)
	return Check{Rules: []string{needs, messages, areas}, Run: func(t *T) {
		interrupts, err := fs.ReadFile(k, "proc/interrupts")
		t.Check("read /proc/interrupts", err)
		log, err := k.Log()
		t.Check("read the kernel's log", err)
		t.Control("the kernel's log has something", true, strings.TrimSpace(strings.Join(log, "")) != "")
		says := func(text string) (n int64) {
			for _, line := range log {
				n += bit(strings.Contains(line, text))
			}
			return n
		}
		var native, calls int64
		for line := range strings.Lines(string(interrupts)) {
			f := strings.Fields(line)
			if len(f) == 0 {
				continue
			}
			switch kind := f[len(f)-1]; kind {
			case nativeIPI, swi0IPI:
				for _, word := range f[1:] {
					n, err := strconv.ParseInt(word, 10, 64)
					if err != nil {
						break
					}
					if kind == nativeIPI {
						native += n
					} else {
						calls += n
					}
				}
				t.Evidence(messages, kind, strings.Join(f, " "))
			}
		}
		t.Control("messages between CPUs were sent", true, native+calls > 0)
		t.Equal(needs, "calls that the kernel died of", t.Want(needs, "calls"), says(saysIllegal))
		t.Truth(needs, "no interrupts between CPUs by calls", !strings.Contains(string(interrupts), swi0IPI))
		t.Equal(messages, "interrupts between CPUs by calls", t.Want(messages, "calls"), calls)
		t.Truth(messages, "messages between CPUs are interrupts of the interrupt controller", native > 0)
		t.Equal(areas, "lines of the kernel's log about areas", t.Want(areas, "calls"), says(saysSteal))
	}}
}
