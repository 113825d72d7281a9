package drift

import (
	"slices"

	"pvabi/abi"
)

// x86Xen binds x86-xen to the headers that Linux has of Xen's interface. They lag behind
// Xen's own: what is younger than Linux's use of it is missing there.
func x86Xen() table {
	return table{
		abi:    abi.X86Xen,
		goarch: "amd64",
		headers: []header{
			{file: "arch/x86/include/asm/xen/cpuid.h"},
			{file: "include/xen/interface/features.h"},
			{file: "include/xen/interface/version.h", assembler: true},
			{file: "include/xen/interface/xen.h", assembler: true},
			{file: "include/xen/interface/event_channel.h"},
			{file: "include/xen/interface/sched.h"},
			{file: "include/xen/interface/vcpu.h"},
		},
		prelude: `
#define DEFINE_GUEST_HANDLE_STRUCT(name) typedef struct name *guest_handle_##name
#define DEFINE_GUEST_HANDLE(name) typedef name *guest_handle_##name
#define GUEST_HANDLE(name) guest_handle_##name
typedef u16 domid_t;
typedef unsigned long xen_ulong_t;
typedef unsigned long xen_pfn_t;
struct pvclock_vcpu_time_info;
`,
		bindings: xenBindings,
		families: []family{
			{prefix: "RUNSTATE_"},
			{prefix: "EVTCHNSTAT_", known: names("EVTCHNSTAT_pirq")},
			// What domains are made, ended and tested with, and a second form of event
			// channels.
			{prefix: "SCHEDOP_", known: names("SCHEDOP_shutdown SCHEDOP_remote_shutdown SCHEDOP_shutdown_code SCHEDOP_watchdog SCHEDOP_pin_override")},
			{prefix: "EVTCHNOP_", known: names("EVTCHNOP_bind_virq EVTCHNOP_bind_pirq EVTCHNOP_init_control EVTCHNOP_expand_array EVTCHNOP_set_priority")},
			{prefix: "VCPUOP_", known: names(`VCPUOP_initialise VCPUOP_up VCPUOP_down VCPUOP_set_periodic_timer VCPUOP_stop_periodic_timer
				VCPUOP_set_singleshot_timer VCPUOP_stop_singleshot_timer VCPUOP_send_nmi VCPUOP_get_physid`)},
		},
	}
}

func xenBindings(p *abi.Platform) []binding {
	// Linux has no names for what it does not use.
	unnamed := []string{"register_runstate_phys_area", "register_vcpu_time_phys_area", "xen_version", "vm_assist", "vcpu_op", "sched_op", "event_channel_op"}
	prefix := map[string]string{"sched_op": "SCHEDOP_", "event_channel_op": "EVTCHNOP_", "vcpu_op": "VCPUOP_", "xen_version": "XENVER_"}
	var out []binding
	for _, c := range p.Calls {
		if slices.Contains(unnamed, c.Name) {
			continue
		}
		out = append(out, binding{number: "calls/" + c.Name + "/number", c: prefix[c.Convention] + c.Name})
	}
	for _, name := range []string{"xen_version", "vm_assist", "vcpu_op", "sched_op", "event_channel_op"} {
		out = append(out, binding{number: "calls/" + name + "/number", c: "__HYPERVISOR_" + name})
	}
	for _, name := range []string{"running", "runnable", "blocked", "offline"} {
		out = append(out, binding{number: "discovery/" + name + "/number", c: "RUNSTATE_" + name})
	}
	for _, name := range []string{"closed", "unbound", "interdomain", "virq", "ipi"} {
		out = append(out, binding{number: "discovery/" + name + "/number", c: "EVTCHNSTAT_" + name})
	}
	for _, name := range []string{"evtchn_send", "evtchn_close", "evtchn_unmask", "evtchn_reset", "evtchn_bind_ipi", "evtchn_bind_vcpu", "evtchn_alloc_unbound"} {
		for _, f := range p.Layout(name).Fields {
			at := "layouts/" + name + "/fields/" + f.Name
			out = append(out, binding{number: at + "/offset", c: name + "." + f.Name, what: offset}, binding{number: at + "/size", c: name + "." + f.Name, what: size})
		}
	}
	return append(out,
		binding{number: "discovery/first-leaf/number", c: "XEN_CPUID_FIRST_LEAF"},
		binding{number: "discovery/signature-ebx/number", c: "XEN_CPUID_SIGNATURE_EBX"},
		binding{number: "discovery/signature-ecx/number", c: "XEN_CPUID_SIGNATURE_ECX"},
		binding{number: "discovery/signature-edx/number", c: "XEN_CPUID_SIGNATURE_EDX"},
		binding{number: "discovery/assist-enable/number", c: "VMASST_CMD_enable"},
		binding{number: "discovery/assist-disable/number", c: "VMASST_CMD_disable"},
		binding{number: "discovery/assist-update-flag/number", c: "VMASST_TYPE_runstate_update_flag"},
		binding{number: "features/mmu_pt_update_preserve_ad/bit", c: "XENFEAT_mmu_pt_update_preserve_ad"},
		binding{number: "layouts/vcpu_runstate_info/size", c: "vcpu_runstate_info", what: size},
		binding{number: "layouts/vcpu_runstate_info/fields/state/offset", c: "vcpu_runstate_info.state", what: offset},
		binding{number: "layouts/vcpu_runstate_info/fields/state_entry_time/offset", c: "vcpu_runstate_info.state_entry_time", what: offset},
		binding{number: "layouts/vcpu_runstate_info/fields/time_running/offset", c: "vcpu_runstate_info.time", what: offset},
		binding{number: "layouts/vcpu_runstate_info/bits/state_entry_time.UPDATE/bit", c: "XEN_RUNSTATE_UPDATE", what: bit},
		binding{number: "layouts/sched_poll/size", c: "sched_poll", what: size},
		binding{number: "layouts/sched_poll/fields/ports/offset", c: "sched_poll.ports", what: offset},
		binding{number: "layouts/sched_poll/fields/nr_ports/offset", c: "sched_poll.nr_ports", what: offset},
		binding{number: "layouts/sched_poll/fields/timeout/offset", c: "sched_poll.timeout", what: offset},
	)
}
