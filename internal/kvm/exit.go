package kvm

import (
	"encoding/binary"
	"fmt"
)

// Exit is why a CPU left its guest.
type Exit struct {
	// Err is an error of KVM_RUN itself; nothing else is set then.
	Err error
	// Stopped is true if Stop ended the run.
	Stopped bool
	Reason  Reason
	// Of an ExitIO or ExitMMIO: port or address, and what was written, least significant byte
	// first.
	Port    uint16
	Address uint64
	Data    uint64
	// Reads is how many bytes an ExitIO or ExitMMIO that does not write is to be given, by
	// VCPU.Give; 0 of one that writes.
	Reads int
	// Of an ExitHypercall or ExitPAPR. Args are the first three arguments of the former, R4 to R12
	// of the latter.
	Number uint64
	Args   [9]uint64
	// Detail has in words what else there is to a reason.
	Detail string
}

// Reason is KVM_EXIT_* of include/uapi/linux/kvm.h.
type Reason uint32

// The reasons that matter here.
const (
	ExitUnknown       Reason = 0
	ExitIO            Reason = 2
	ExitHypercall     Reason = 3
	ExitDebug         Reason = 4
	ExitHLT           Reason = 5
	ExitMMIO          Reason = 6
	ExitShutdown      Reason = 8
	ExitFailEntry     Reason = 9
	ExitInternalError Reason = 17
	ExitPAPR          Reason = 19
	ExitSystemEvent   Reason = 24
)

var reasons = map[Reason]string{
	ExitUnknown:       "a reason of the processor that KVM does not know",
	ExitIO:            "access to an I/O port",
	ExitHypercall:     "a call for the monitor",
	ExitDebug:         "a debug event",
	ExitHLT:           "HLT, with no interrupt controller in KVM that could end it",
	ExitMMIO:          "access to memory that is not there",
	ExitShutdown:      "shutdown (triple fault)",
	ExitFailEntry:     "the processor refuses to enter the guest",
	ExitInternalError: "KVM cannot go on (internal error)",
	ExitPAPR:          "a call of PAPR for the monitor",
	ExitSystemEvent:   "a system event",
}

// String says in words why.
func (e Exit) String() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Stopped:
		return "stopped"
	}
	text, ok := reasons[e.Reason]
	if !ok {
		text = fmt.Sprintf("KVM's exit reason %d", e.Reason)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Offsets in struct kvm_run.
const (
	runReason = 8
	runUnion  = 32
)

// decodeExit reads what KVM_RUN left in struct kvm_run, which KVM mapped.
func decodeExit(run []byte) Exit {
	u16, u32, u64 := binary.LittleEndian.Uint16, binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	e := Exit{Reason: Reason(u32(run[runReason:]))}
	u := run[runUnion:]
	switch e.Reason {
	case ExitIO:
		const out = 1
		direction, size, offset := u[0], uint64(u[1]), u64(u[8:])
		e.Port = u16(u[2:])
		if direction == out && offset < uint64(len(run)) && size <= 4 {
			var data [8]byte
			copy(data[:size], run[offset:])
			e.Data = u64(data[:])
			e.Detail = fmt.Sprintf("%#x written to port %#x", e.Data, e.Port)
		} else {
			if direction != out && size <= 4 && offset <= uint64(len(run))-size {
				e.Reads = int(size)
			}
			e.Detail = fmt.Sprintf("%d bytes at port %#x, direction %d", size, e.Port, direction)
		}
	case ExitHypercall:
		e.Number = u64(u)
		for i := range 3 {
			e.Args[i] = u64(u[8+8*i:])
		}
		e.Detail = fmt.Sprintf("number %d with %#x, %#x, %#x", e.Number, e.Args[0], e.Args[1], e.Args[2])
	case ExitPAPR:
		e.Number = u64(u)
		for i := range e.Args {
			e.Args[i] = u64(u[16+8*i:]) // behind the number and what the call is to return
		}
		e.Detail = fmt.Sprintf("number %#x with %#x, %#x, %#x", e.Number, e.Args[0], e.Args[1], e.Args[2])
	case ExitMMIO:
		var data [8]byte
		size, written := min(u32(u[16:]), 8), u[20] != 0
		copy(data[:size], u[8:])
		e.Detail = fmt.Sprintf("%d bytes at %#x, write %t", size, u64(u), written)
		e.Address = u64(u)
		if written {
			e.Data = u64(data[:])
		} else {
			e.Reads = int(size)
		}
	case ExitUnknown, ExitFailEntry:
		e.Detail = fmt.Sprintf("%#x", u64(u))
	case ExitInternalError:
		sub, n := u32(u), min(u32(u[4:]), 16)
		e.Detail = map[uint32]string{1: "an instruction that it cannot emulate", 3: "an event while delivering an event", 4: "an exit that it did not expect"}[sub]
		e.Detail += fmt.Sprintf(" (suberror %d)", sub)
		for i := range n {
			e.Detail += fmt.Sprintf(" %#x", u64(u[8+8*i:]))
		}
	case ExitSystemEvent:
		e.Detail = fmt.Sprintf("type %d", u32(u))
	}
	return e
}
