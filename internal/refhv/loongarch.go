package refhv

import (
	"fmt"
	"slices"

	"pvabi/abi"
)

// LoongArch is the hypervisor's side of loongarch-kvm, after the KVM of Linux 7.2.12: files
// that are named are those under arch/loongarch/kvm. It is not safe for concurrent use.
//
// Its functions are the steps that it is made of, after KVM's own; they are variables so that a
// mutant can replace one.
type LoongArch struct {
	m        Machine
	abi      *abi.Platform
	vcpus    []loongVCPU
	features uint64
	frozen   bool

	code       func(code uint64) uint64
	service    func(cpu int, function uint64, a *[6]uint64) int64
	ipi        func(cpu int, low, high, lowest uint64)
	target     func(id uint32) (cpu int, ok bool)
	queue      func(cpu int)
	notify     func(cpu int, id, data uint64) int64
	steal      func(cpu int)
	clear      func(cpu int, r record)
	publish    func(cpu int, r record, delay uint64)
	put        func(cpu int, involuntary bool)
	cpucfg     func(cpu int, index uint32) uint64
	word       func(cpu int) uint64
	hypervisor func(cpu int, features uint64) uint64
	reset      func(cpu int)
	// after is where a call has come to its end, with the arguments' registers as the guest
	// will find them.
	after func(cpu int, code uint64, a *[6]uint64)
}

// loongVCPU is what KVM keeps of a CPU (asm/kvm_host.h, struct kvm_vcpu_arch).
type loongVCPU struct {
	area      uint64 // st.guest_addr
	lastSteal uint64 // st.last_steal
	preempted bool   // st.preempted
	request   bool   // KVM_REQ_STEAL_UPDATE
	counters  map[string]uint64
}

// LoongArchCounters are the counters of a CPU (vcpu.c, kvm_vcpu_stats_desc).
var LoongArchCounters = []string{"hypercall_exits", "cpucfg_exits", "idle_exits"}

// NewLoongArch makes the hypervisor of a machine. table is its own copy of the platform's. The
// changes break it, one after the other.
func NewLoongArch(m Machine, table *abi.Platform, changes ...func(*LoongArch)) *LoongArch {
	h := &LoongArch{m: m, abi: table, vcpus: make([]loongVCPU, m.CPUs())}
	for i := range h.vcpus {
		h.vcpus[i].counters = map[string]uint64{}
	}
	// vm.c, kvm_vm_init_features: the host keeps scheduler statistics.
	for _, f := range table.Features {
		if f.Offered == "kernel" {
			h.features |= 1 << f.Bit
		}
	}
	h.service, h.ipi, h.target, h.queue = h.handleService, h.sendIPI, h.byID, h.queueIRQ
	h.notify, h.steal, h.clear, h.publish, h.put = h.saveNotify, h.updateStolenTime, h.clearPreempted, h.publishSteal, h.vcpuPut
	h.cpucfg, h.word, h.hypervisor, h.reset = h.emulateCPUCFG, h.featureWord, h.setVM, h.resetVCPU
	h.code = func(code uint64) uint64 { return code }
	h.after = func(int, uint64, *[6]uint64) {}
	for _, change := range changes {
		change(h)
	}
	return h
}

// CheckLoongArchFeatures is an error about a word of features with bits that mean nothing.
func CheckLoongArchFeatures(table *abi.Platform, word uint64) error {
	for _, f := range table.Features {
		word &^= 1 << f.Bit
	}
	if word != 0 {
		return fmt.Errorf("reference hypervisor: bits %#x of the features mean nothing", word)
	}
	return nil
}

// SetFeatures is what a VMM does to choose what is offered (vcpu.c,
// kvm_loongarch_cpucfg_set_attr): bits that mean nothing are refused, and so is another choice
// than the first one.
func (h *LoongArch) SetFeatures(word uint64) error {
	if err := CheckLoongArchFeatures(h.abi, word); err != nil {
		return err
	}
	if h.frozen && word != h.features {
		return fmt.Errorf("reference hypervisor: features %#x: they are %#x already, for all CPUs", word, h.features)
	}
	h.features, h.frozen = word, true
	return nil
}

func (h *LoongArch) offered(feature string) bool {
	return h.features>>h.abi.Feature(feature).Bit&1 == 1
}

// Counter is one of the counters of a CPU, false if there is none of that name.
func (h *LoongArch) Counter(cpu int, name string) (uint64, bool) {
	return h.vcpus[cpu].counters[name], slices.Contains(LoongArchCounters, name)
}

// Area returns the word by which a CPU has registered its area, 0 if it has none.
func (h *LoongArch) Area(cpu int) uint64 { return h.vcpus[cpu].area }

// Discovery.

// Features is IOCSR FEATURES as a CPU reads it, where the machine itself has the value native.
func (h *LoongArch) Features(cpu int, native uint64) uint64 { return h.hypervisor(cpu, native) }

// setVM is the bit that QEMU sets for a machine of KVM's (hw/loongarch/virt.c, virt_iocsr_misc_read,
// QEMU 11.1).
func (h *LoongArch) setVM(_ int, native uint64) uint64 {
	return native | h.abi.Register("FEATURES").Bit("VM")
}

// CPUCFG answers the instruction of that name for an index that is the hypervisor's; it is false
// for one that is the CPU's own.
func (h *LoongArch) CPUCFG(cpu int, index uint32) (value uint64, ok bool) {
	if uint64(index) < h.abi.Word("first-word") || uint64(index) > h.abi.Word("last-word") {
		return 0, false
	}
	h.vcpus[cpu].counters["cpucfg_exits"]++
	return h.cpucfg(cpu, index), true
}

// emulateCPUCFG is kvm_emu_cpucfg of exit.c. What is not defined reads as 0.
func (h *LoongArch) emulateCPUCFG(cpu int, index uint32) uint64 {
	switch uint64(index) {
	case h.abi.Word("signature-word"):
		return h.abi.Word("signature")
	case h.abi.Word("features-word"):
		return h.word(cpu)
	}
	return 0
}

func (h *LoongArch) featureWord(int) uint64 { return h.features }

// Calls.

// Call does HVCL with that code. a holds the arguments' registers, R4 to R9, as they are before
// it and as the guest finds them after it. The CPU's program goes on behind the instruction.
//
// There is no test of privilege in KVM (exit.c, kvm_handle_hypercall), and none here.
func (h *LoongArch) Call(cpu int, code uint64, a *[6]uint64) {
	result := h.abi.Errno("INVALID_CODE")
	switch h.code(code) {
	case h.abi.Word("code-service"):
		h.vcpus[cpu].counters["hypercall_exits"]++
		result = h.service(cpu, a[0], a)
	case h.abi.Word("code-user-service"):
		// Where the feature is offered a VMM answers, by default the same. This one has no
		// service.
		if h.offered("USER_HCALL") {
			h.vcpus[cpu].counters["hypercall_exits"]++
		}
	}
	a[0] = uint64(result)
	h.after(cpu, code, a)
	h.requests(cpu)
}

// handleService is kvm_handle_service of exit.c.
func (h *LoongArch) handleService(cpu int, function uint64, a *[6]uint64) int64 {
	switch function {
	case h.abi.Call("IPI").Number:
		if h.offered("IPI") {
			h.ipi(cpu, a[1], a[2], a[3])
			return 0
		}
	case h.abi.Call("NOTIFY").Number:
		if h.offered("STEAL_TIME") {
			return h.notify(cpu, a[1], a[2])
		}
	}
	return h.abi.Errno("INVALID_CODE")
}

// sendIPI is kvm_send_pv_ipi of exit.c. The lowest id, and its sum with a bit's number, are of 32
// bits.
func (h *LoongArch) sendIPI(_ int, low, high, lowest uint64) {
	for bit := range uint32(128) {
		word := low
		if bit >= 64 {
			word = high
		}
		if word>>(bit%64)&1 == 0 {
			continue
		}
		if target, ok := h.target(uint32(lowest) + bit); ok {
			h.queue(target)
		}
	}
}

// byID is kvm_get_vcpu_by_cpuid of vcpu.c.
func (h *LoongArch) byID(id uint32) (int, bool) {
	for cpu := range h.vcpus {
		if uint64(id) < h.abi.Word("cpus") && h.m.ID(cpu) == uint64(id) {
			return cpu, true
		}
	}
	return 0, false
}

// queueIRQ makes SWI0 pending.
func (h *LoongArch) queueIRQ(cpu int) { h.m.Interrupt(cpu, h.abi.Register("ESTAT").Bit("SWI0")) }

// saveNotify is kvm_save_notify of exit.c.
func (h *LoongArch) saveNotify(cpu int, id, data uint64) int64 {
	arg := h.abi.Call("NOTIFY").Arg
	if id != uint64(arg("what").Value("STEAL_TIME")) {
		return h.abi.Errno("INVALID_CODE")
	}
	valid := uint64(arg("address").Value("VALID"))
	if data&uint64(arg("address").Value("RESERVED")) != 0 {
		return h.abi.Errno("INVALID_PARAMETER")
	}
	v := &h.vcpus[cpu]
	v.area = data
	if data&valid != 0 {
		v.lastSteal = h.m.Delay(cpu)
		v.request = true
	}
	return 0
}

func (h *LoongArch) layout() abi.Layout { return h.abi.Layout("kvm_steal_time") }

// The area.

// record is a CPU's area in memory.
type record struct {
	m       Machine
	layout  abi.Layout
	address uint64
}

func (r record) get(field string) (uint64, bool) {
	f := r.layout.Field(field)
	return r.m.Load(r.address+f.Offset, f.Size)
}

func (r record) set(field string, value uint64) bool {
	f := r.layout.Field(field)
	return r.m.Store(r.address+f.Offset, f.Size, value)
}

// record returns a CPU's area, false if it has none.
func (h *LoongArch) record(cpu int) (record, bool) {
	area := h.vcpus[cpu].area
	l := h.layout()
	valid := uint64(h.abi.Call("NOTIFY").Arg("address").Value("VALID"))
	return record{h.m, l, area &^ (l.Align - 1)}, area&valid != 0
}

// Enter comes when a CPU that was out of the guest, because the host had taken it off or it had
// waited, is about to go on: kvm_arch_vcpu_load of vcpu.c, and what it asks for.
func (h *LoongArch) Enter(cpu int) {
	h.vcpus[cpu].request = true
	h.requests(cpu)
}

// requests is kvm_check_requests of vcpu.c, which comes before each entry into the guest.
func (h *LoongArch) requests(cpu int) {
	if v := &h.vcpus[cpu]; v.request {
		v.request = false
		h.steal(cpu)
	}
}

// Leave comes when a CPU stops running; involuntary says that the host took it off while it would
// have gone on.
func (h *LoongArch) Leave(cpu int, involuntary bool) { h.put(cpu, involuntary) }

// Idle counts a wait.
func (h *LoongArch) Idle(cpu int) { h.vcpus[cpu].counters["idle_exits"]++ }

// vcpuPut is kvm_arch_vcpu_put and kvm_vcpu_set_pv_preempted of vcpu.c.
func (h *LoongArch) vcpuPut(cpu int, involuntary bool) {
	v := &h.vcpus[cpu]
	if !involuntary || v.preempted || !h.offered("PREEMPT") {
		return
	}
	if r, ok := h.record(cpu); ok && r.set("preempted", r.layout.Bit("preempted", "PREEMPTED")) {
		v.preempted = true
	}
}

// updateStolenTime is kvm_update_stolen_time of vcpu.c. An area that is not in memory is left
// alone.
func (h *LoongArch) updateStolenTime(cpu int) {
	r, ok := h.record(cpu)
	if !ok {
		return
	}
	if h.offered("PREEMPT") {
		h.clear(cpu, r)
	}
	v := &h.vcpus[cpu]
	delay := h.m.Delay(cpu)
	h.publish(cpu, r, delay-v.lastSteal)
	v.lastSteal = delay
}

func (h *LoongArch) clearPreempted(cpu int, r record) {
	if r.set("preempted", 0) {
		h.vcpus[cpu].preempted = false
	}
}

// publishSteal adds delay to steal. A version that is odd to begin with is what was there before
// the area was registered.
func (h *LoongArch) publishSteal(cpu int, r record, delay uint64) {
	version, ok := r.get("version")
	if !ok {
		return
	}
	version += version&1 + 1
	r.set("version", version)
	h.m.Pause(cpu)
	steal, _ := r.get("steal")
	r.set("steal", steal+delay)
	h.m.Pause(cpu)
	r.set("version", version+1)
}

// Reset brings a CPU to its state after a reset (vcpu.c, KVM_REG_LOONGARCH_VCPU_RESET): it has no
// area. That interrupts are not pending any more is the machine's part.
func (h *LoongArch) Reset(cpu int) { h.reset(cpu) }

func (h *LoongArch) resetVCPU(cpu int) { h.vcpus[cpu].area = 0 }
