// Package kmod gets a probe of package arch into the kernel that runs: it writes a loadable
// module for that kernel, in Go and at run time, loads it, and speaks with it. No headers
// and no compiler are needed, and the module imports nothing from the kernel.
//
// # The module
//
// A module is an ELF file that the kernel links to itself ([Image] writes it). What it has
// to agree on with the kernel is little: the size of the kernel's struct module and the
// string called vermagic, both of which any other module of the same kernel shows, its
// sibling ([ParseSibling], [FindSibling]). Its code is the probe, which comes with a list of
// the instructions that may fault, for the kernel's table of exceptions, and a few
// instructions of glue, glue_$GOARCH.s. It has no function that runs when it is loaded or
// unloaded, changes nothing in the kernel, and can be unloaded whenever it is idle.
//
// LoongArch looks up no table for an instruction that the machine does not have. There, a probe's
// list of those is in a block that the kernel is told of while a module is in use
// ([Module.Guard]), by the function that is for those who want to know of its deaths before it dies
// (kernel/notifier.c, register_die_notifier).
//
// # The channel
//
// A module parameter may bring its own functions to be written and read by (include/linux/
// moduleparam.h, struct kernel_param_ops). The file /sys/module/NAME/parameters/call is
// such a parameter. All its words are 64 bits, in the byte order of the machine:
//
//	write  function, three arguments, words: the kernel calls the function with the
//	       arguments and the address of its copy of the words, in the writer's context and
//	       on the CPU of the writer. Its result goes into the control block. A page, at
//	       most, can be written.
//	read   a stretch of memory, given by the words from and count of the control block.
//	       Less than a page can be read.
//
// The control block is memory of the module; it tells the addresses of all there is, its
// own first, and is what is read until something else was asked for. One of the functions
// is put, which copies the words that come with a call to an address, each by one access:
// [Module.Write] and, as from and count are memory like all other, [Module.Read] are made
// of it.
//
// The kernel holds a lock of the module while one of these functions runs (kernel/params.c,
// param_attr_store). A module that runs a program can therefore not be spoken with, and
// so there is one for each CPU, and another to look at the memory of all of them. The
// other ways to look at it are worse: a map of user memory can be moved by the kernel
// below the probe, and /proc/kcore cannot be written and is not read word by word.
//
// # Memory
//
// A module has the frame of its programs. It is also given memory that is contiguous in the
// kernel's map of all memory, so that a hypervisor can be told its address ([Real]): the
// arguments that a module is loaded with are such memory, and are kept for as long as it is
// loaded (kernel/module/main.c, load_module and free_module). They are given to its
// parameter memory, whose function only notes their address.
package kmod

import "encoding/binary"

// Probe is the code that a module brings into the kernel.
type Probe struct {
	Bytes []byte
	// Run is the offset in Bytes of the function that runs a program: of C's calling
	// convention, with the address of a frame and 0, or 1 to go on after an Exit.
	Run    int
	Fixups []Fixup
	// Illegal is for instructions that the machine may not have, where the kernel does not look
	// for them in its table.
	Illegal []Fixup
}

// Fixup is the offset of an instruction that may fault, and where to go on then. On
// x86-64 the number of the exception is in RAX there.
type Fixup struct{ At, Resume int }

// Kernel is what a module has to agree on with its kernel.
type Kernel struct {
	// Vermagic is the kernel's release and options that a module must share.
	Vermagic string
	// Size and Align are those of struct module, in bytes.
	Size, Align uint64
	// Versions are the sections with the checksums of the kernel's interfaces, by name.
	// There are none where the kernel does not look at any.
	Versions map[string][]byte
}

// Refusal is why a kernel takes no module from anybody, or none of ours. It is an error of
// its own and wrapped by the errors of this package, which say more.
type Refusal string

// The ways to refuse.
const (
	NoModules   Refusal = "the kernel has no loadable modules"
	Disabled    Refusal = "loading modules was turned off until the next boot"
	NotAllowed  Refusal = "loading modules takes CAP_SYS_MODULE: run as root of the machine itself"
	Lockdown    Refusal = "the kernel is locked down and takes only modules signed by its builder"
	Signature   Refusal = "the kernel takes only signed modules"
	OtherKernel Refusal = "the module does not fit the kernel that runs"
	NoSibling   Refusal = "there is no module of the kernel that runs to learn from what its modules look like"
	Checked     Refusal = "the kernel checks the types of functions that it calls (kCFI), and a probe has none"
)

// Error implements error.
func (r Refusal) Error() string { return string(r) }

// The control block: offsets in bytes.
const (
	controlSelf   = 8 * iota // its own address
	controlRun               // of the probe
	controlPut               // of the function that copies words
	controlFrame             // of the module's frame
	controlMemory            // of the memory that it was loaded with, 0 for none
	controlResult            // of the last function called
	controlFrom              // what a read reads: the address
	controlCount             // and the number of words, 1 or more
	controlSize
)

// The block that the kernel is told of for Probe.Illegal, after the control block: offsets in bytes.
// It begins with a struct notifier_block (include/linux/notifier.h).
const (
	guardCall  = 0  // the function to call
	guardCount = 24 // of pairs
	guardPairs = 32 // of addresses: of an instruction, and of where to go on
	guardPair  = 16
)

// What is written to the parameter: offsets in bytes.
const (
	callFunction = 8 * iota
	callFirst
	callSecond
	callThird
	callWords
)

// paramArg is the offset in bytes of the member arg of struct kernel_param, which is the
// address of the control block (include/linux/moduleparam.h).
const paramArg = 32

// What a page, of 4 KiB at least, has room for.
const (
	maxWrite = 4096 - callWords
	maxRead  = 4096 - 8
)

// Names of the parameters.
const (
	paramCall   = "call"
	paramMemory = "memory"
)

// words are 64-bit words in the machine's byte order.
func words(values ...uint64) []byte {
	var out []byte
	for _, v := range values {
		out = binary.NativeEndian.AppendUint64(out, v)
	}
	return out
}
