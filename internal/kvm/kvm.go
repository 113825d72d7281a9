// Package kvm is a small virtual machine monitor over Linux's /dev/kvm, on x86-64 and on
// PowerPC, where it needs the KVM that is a hypervisor, KVM-HV, as a guest of PAPR has it, too. It
// knows how to make a machine with memory and CPUs, how to have a CPU run, and what KVM
// counts about it. It emulates no device: whatever a guest does that KVM does not do
// itself ends the run as an [Exit].
//
// # How KVM is asked
//
// Everything is an ioctl(2) on one of three kinds of file: /dev/kvm itself for what the
// host can do, a file for each machine, and one for each of its CPUs. KVM_RUN on the
// latter enters the guest and returns when it needs its monitor; what it needs then
// stands in a piece of memory that it shares with the monitor (struct kvm_run). See
// Documentation/virt/kvm/api.rst in Linux.
//
// # What is peculiar here
//
// Each CPU has a thread of the operating system of its own for its whole life, and all
// its ioctls are made there: KVM counts steal time by how long that thread waited for a
// CPU of the host, and would have it run backwards from one thread to another. The thread
// takes no signals but the one that ends a run: on PowerPC any signal would end a guest's wait.
//
// One machine without a CPU is held open for the life of the process. KVM changes
// kernel code (static keys) when the first machine comes and the last one goes, which
// on hosts that are themselves emulated in several threads has crashed the host.
package kvm

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Entry is one leaf of CPUID (struct kvm_cpuid_entry2).
type Entry struct {
	Function, Index, Flags uint32
	EAX, EBX, ECX, EDX     uint32
	_                      [3]uint32
}

// Leaves of hypervisors begin at FirstLeaf and every LeafStep from there. KVM's own are
// two: the signature, and features with hints (include/uapi/asm/kvm_para.h in Linux).
const (
	FirstLeaf = 0x40000000
	LeafStep  = 0x100
	lastLeaf  = 0x40010000
	kvmLeaves = 2
)

// Identity is what a CPU's leaves of CPUID say of it beyond what the host supports.
type Identity struct {
	// ID is the x2APIC id.
	ID uint32
	// Features replaces the word of paravirtual features, nil leaves it.
	Features *uint32
	// Hints are added to those that the host offers.
	Hints uint32
	// Base is where KVM's leaves are, FirstLeaf or some LeafSteps above. A foreign
	// signature is then at FirstLeaf, and nothing between the two.
	Base uint32
}

// foreign is the signature of the leaf before KVM's, three words of it.
const foreign = "pvabi.pvabi."

// CPUID makes the leaves of one CPU from those that the host supports.
func CPUID(supported []Entry, id Identity) ([]Entry, error) {
	if id.Base < FirstLeaf || id.Base >= lastLeaf || (id.Base-FirstLeaf)%LeafStep != 0 {
		return nil, fmt.Errorf("kvm: no hypervisor's leaves can begin at %#x: not a multiple of %#x from %#x on", id.Base, LeafStep, FirstLeaf)
	}
	var out []Entry
	if id.Base > FirstLeaf {
		word := func(i int) uint32 { return binary.LittleEndian.Uint32([]byte(foreign)[4*i:]) }
		out = append(out, Entry{Function: FirstLeaf, EAX: FirstLeaf, EBX: word(0), ECX: word(1), EDX: word(2)})
	}
	for _, e := range supported {
		switch f := e.Function; {
		case f == 1:
			const x2APIC, hypervisor = 1 << 21, 1 << 31
			e.EBX = e.EBX&0x00ffffff | id.ID<<24
			e.ECX |= x2APIC | hypervisor
		case f == 0xb, f == 0x1f:
			e.EDX = id.ID
		case f == 0x8000001e:
			e.EAX = id.ID
		case f >= FirstLeaf && f < FirstLeaf+kvmLeaves:
			e.Function = f - FirstLeaf + id.Base
			if f == FirstLeaf {
				e.EAX += id.Base - FirstLeaf
				break
			}
			if id.Features != nil {
				e.EAX = *id.Features
			}
			e.EDX |= id.Hints
		case f >= FirstLeaf && f < lastLeaf:
			continue
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		if a.Function != b.Function {
			return int(int64(a.Function) - int64(b.Function))
		}
		return int(int64(a.Index) - int64(b.Index))
	})
	return out, nil
}
