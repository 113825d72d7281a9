package conformance

import "pvabi/abi"

// xenDeviations is what Xen is known to do otherwise. What it says was seen in runs of 4.17 and 4.20
// and read in Xen's source.
var xenDeviations = []Deviation{{
	ID: "xen-area-late-in-user-mode", Rule: "x86-xen/preempted/area-user-mode", Implementer: "Xen",
	Text: "cannot write an area in the kernel's memory of a vCPU that it preempts in user mode, as that is not mapped there, and writes it when the vCPU next comes to the kernel, running; an area that is registered by physical address is not late",
	Sources: []abi.Source{
		{Tree: "Xen 4.20.4", Path: "xen/arch/x86/domain.c", Symbol: "_update_runstate_area"},
		{Tree: "Xen 4.20.4", Path: "xen/arch/x86/pv/domain.c", Symbol: "_toggle_guest_pt"},
		{Tree: "Xen 4.17.5", Path: "xen/arch/x86/domain.c", Symbol: "_update_runstate_area"},
	},
}}
