package conformance

import "pvabi/abi"

// linuxLoongArchDeviations is what Linux is known to do otherwise as a guest of KVM on LoongArch. What
// each says was seen in a run and read in Linux's source.
var linuxLoongArchDeviations = func() []Deviation {
	source := func(path, symbol string) abi.Source {
		return abi.Source{Tree: "Linux 7.2.12", Path: path, Symbol: symbol}
	}
	return []Deviation{
		{
			ID: "linux-loongarch-kexec-offline-cpus", Rule: "loongarch-kvm/guest/released-at-kexec", Implementer: Linux,
			Text: "takes all areas back and then brings the CPUs online that are offline, each of which registers its area anew: " +
				"the hypervisor writes into what has become the next kernel's memory",
			Sources: []abi.Source{
				source("kernel/kexec_core.c", "kernel_kexec"), source("arch/loongarch/kernel/machine_kexec.c", "machine_shutdown"),
				source("arch/loongarch/kernel/paravirt.c", "pv_time_cpu_online"),
			},
		},
		{
			ID: "linux-loongarch-panic", Rule: "loongarch-kvm/guest/released-at-panic", Implementer: Linux,
			Text: "does not take areas back on a panic, neither before a restart nor before a crash kernel is entered",
			Sources: []abi.Source{
				source("kernel/panic.c", "vpanic"), source("arch/loongarch/kernel/machine_kexec.c", "machine_crash_shutdown"),
				source("arch/loongarch/kernel/paravirt.c", "pv_reboot_notify"),
			},
		},
	}
}()
