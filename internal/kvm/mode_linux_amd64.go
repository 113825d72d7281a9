package kvm

// Control registers, Intel SDM volume 3, "Control registers".
const (
	cr0Protected  = 1<<0 | 1<<1 | 1<<4 | 1<<5 // PE, MP, ET, NE
	cr0Paging     = 1 << 31
	cr0Real       = 1 << 4
	cr4Long       = 1<<5 | 1<<9 | 1<<10 // PAE, OSFXSR, OSXMMEXCPT
	cr4XSave      = 1 << 18
	eferLong      = 1<<8 | 1<<10 // LME, LMA
	apicBase      = 0xfee00000
	apicX2        = 1<<10 | 1<<11 // EXTD, EN
	apicBoot      = 1 << 8
	typeCode      = 11
	typeData      = 3
	typeTaskState = 11
)

// Sregs makes the system registers of 64-bit mode for a CPU of the machine that Tables was
// written for, at privilege level 0 or 3, with GS based at an address. s is what they were;
// xsave tells whether the processor has XSAVE, apic whether KVM has an APIC for it.
func (l Long) Sregs(s Sregs, cpu int, level uint8, gs uint64, xsave, apic bool) Sregs {
	code := Segment{Limit: 0xffffffff, Selector: kernelCode, Type: typeCode, Present: 1, S: 1, L: 1, G: 1}
	data := Segment{Limit: 0xffffffff, Selector: kernelData, Type: typeData, Present: 1, S: 1, DB: 1, G: 1}
	if level == 3 {
		code.Selector, code.DPL = userCode, 3
		data.Selector, data.DPL = userData, 3
	}
	s.CS, s.DS, s.ES, s.FS, s.SS, s.GS = code, data, data, data, data, data
	s.GS.Base = gs
	s.TR = Segment{Base: taskStates + uint64(cpu)*taskSize, Limit: 0x67, Selector: taskState, Type: typeTaskState, Present: 1}
	s.LDT = Segment{Unusable: 1}
	s.GDT = Table{Base: descriptors, Limit: 7*8 - 1}
	s.IDT = Table{Base: gateTable, Limit: 256*16 - 1}
	s.CR0, s.CR3, s.CR4, s.EFER = cr0Protected|cr0Paging, pageMap, cr4Long, eferLong
	if xsave {
		s.CR4 |= cr4XSave
	}
	if apic {
		s.APICBase = s.APICBase&apicBoot | apicBase | apicX2
	}
	return s
}

// Protected makes the system registers of 32-bit protected mode without paging, Real those
// of real mode. In both, memory begins at address 0, and there is no handler for any
// exception, so that one ends in a shutdown.
func Protected(s Sregs) Sregs {
	s.CS = Segment{Limit: 0xffffffff, Selector: kernelCode, Type: typeCode, Present: 1, S: 1, DB: 1, G: 1}
	data := Segment{Limit: 0xffffffff, Selector: kernelData, Type: typeData, Present: 1, S: 1, DB: 1, G: 1}
	s.DS, s.ES, s.FS, s.GS, s.SS = data, data, data, data, data
	s.IDT = Table{}
	s.CR0, s.CR4, s.EFER = cr0Protected, 0, 0
	return s
}

// Real is described at Protected.
func Real(s Sregs) Sregs {
	s.CS = Segment{Limit: 0xffff, Type: typeCode, Present: 1, S: 1}
	data := Segment{Limit: 0xffff, Type: typeData, Present: 1, S: 1}
	s.DS, s.ES, s.FS, s.GS, s.SS = data, data, data, data, data
	s.IDT = Table{}
	s.CR0, s.CR4, s.EFER = cr0Real, 0, 0
	return s
}
