// Package abi says what the paravirtual ABI between hypervisors and guest
// kernels is: numbers, bits, layouts and the rules that each side keeps.
//
// A platform's ABI is a value of type [Platform], not a set of constants. The
// checks read every expected value out of such a value, so that a changed copy
// (a mutant, a vendor's numbering, a proposal that was never merged) can be
// held against the same implementer. [Platform.Clone] makes the copy and
// [Platform.Set] changes one number in it, by the path that [Platform.Numbers]
// lists.
//
// The package holds types and tables only and imports nothing of the project.
package abi

import (
	"fmt"
	"slices"
	"strings"
)

// Side says who owes a rule.
type Side string

// The two sides of the ABI.
const (
	Hypervisor Side = "hypervisor"
	Guest      Side = "guest"
)

// Source is where a statement can be looked up.
type Source struct {
	// Tree is the body of code or text, with its version: "Linux 7.2.12".
	Tree string `json:"tree"`
	// Path is a file inside Tree.
	Path string `json:"path"`
	// Symbol is a function, structure, macro or section in Path.
	Symbol string `json:"symbol,omitempty"`
	// Note says what the source adds, or where it differs from another one.
	Note string `json:"note,omitempty"`
}

// String renders the source as "Tree, Path, Symbol".
func (s Source) String() string {
	parts := []string{s.Tree, s.Path}
	if s.Symbol != "" {
		parts = append(parts, s.Symbol)
	}
	out := strings.Join(parts, ", ")
	if s.Note != "" {
		out += " (" + s.Note + ")"
	}
	return out
}

// Value is one number that a rule demands.
type Value struct {
	// Name is what a check asks for: "result", "wakes".
	Name string `json:"name"`
	// Number is the value itself; a promise is 1 (kept) or 0 (not given).
	Number int64 `json:"number"`
	// Unit says what the number counts, where that is not plain.
	Unit string `json:"unit,omitempty"`
}

// Rule is one statement of the ABI that a run can find kept or broken.
type Rule struct {
	// ID is platform/topic/statement. It never changes.
	ID string `json:"id"`
	// Side owes the rule.
	Side Side `json:"side"`
	// Text is the statement, a sentence.
	Text string `json:"text"`
	// Want lists the numbers that the statement demands beyond those of the
	// platform's tables.
	Want []Value `json:"want,omitempty"`
	// Needs names the features without which the rule does not apply.
	Needs []string `json:"needs,omitempty"`
	// Since is the first version that has what the rule is about: of Linux, or of Xen in its
	// own ABI. An older one may do otherwise.
	Since string `json:"since,omitempty"`
	// Sources say where the statement comes from.
	Sources []Source `json:"sources"`
}

// Name returns the id without the platform: "topic/statement". A portable
// question has the same name on every platform.
func (r Rule) Name() string {
	_, name, _ := strings.Cut(r.ID, "/")
	return name
}

// Topic returns the middle part of the id.
func (r Rule) Topic() string {
	topic, _, _ := strings.Cut(r.Name(), "/")
	return topic
}

// Arg is one argument of a call.
type Arg struct {
	Name string `json:"name"`
	// Text says what the argument means, with its unit.
	Text string `json:"text"`
	// Values names values that the argument can take, or limits of what it
	// points to.
	Values []Value `json:"values,omitempty"`
}

// Value returns the named value of the argument; an unknown name panics.
func (a Arg) Value(name string) int64 {
	return must(a.Values, name, func(v Value) string { return v.Name }, "value of argument", a.Name).Number
}

// Outcome is one result of a call and when it is given.
type Outcome struct {
	// When says in few words which case this is. [Platform.Result] finds the
	// outcome by it, so that the words for the same case are the same on every
	// platform: "self", "running target", "waiting target", "absent target".
	When string `json:"when"`
	// Error names an [Errno] of the platform, or is empty.
	Error string `json:"error,omitempty"`
	// Result is the value where Error is empty.
	Result int64 `json:"result"`
}

// Call is a hypercall, DIAGNOSE code, SIGP order or hcall.
type Call struct {
	// Name is the name without the platform's prefix: "KICK_CPU".
	Name   string `json:"name"`
	Number uint64 `json:"number"`
	// Convention names the calling convention by which the call is made; it is
	// empty for the platform's first.
	Convention string `json:"convention,omitempty"`
	Text       string `json:"text"`
	Args       []Arg  `json:"args,omitempty"`
	// Feature names the feature that gates the call, or is empty.
	Feature string `json:"feature,omitempty"`
	// Undefined marks a number that has a name but no implementation on this
	// platform, so that it must be refused like a number without a name.
	Undefined bool      `json:"undefined,omitempty"`
	Outcomes  []Outcome `json:"outcomes,omitempty"`
	Sources   []Source  `json:"sources"`
}

// Arg returns the argument with that name; an unknown name panics.
func (c Call) Arg(name string) Arg {
	return must(c.Args, name, func(a Arg) string { return a.Name }, "argument of", c.Name)
}

// Errno is an error number of the platform.
type Errno struct {
	Name string `json:"name"`
	// Result is the number as a caller sees it in the result register, so
	// negative where the platform returns errors negative.
	Result  int64    `json:"result"`
	Text    string   `json:"text"`
	Sources []Source `json:"sources"`
}

// Feature is something that an implementer offers by discovery.
type Feature struct {
	Name string `json:"name"`
	// Word names the word of discovery that holds the bit: "features". Where a
	// feature is announced by a string, Word is that string, and Bit is 0.
	Word string `json:"word"`
	// Bit is the number of the bit in Word, 0 the least significant; facilities
	// of s390 count from the most significant, as the architecture does.
	Bit  uint64 `json:"bit"`
	Text string `json:"text"`
	// Offered says who may set the bit: "kernel", "vmm" or "nobody".
	Offered string `json:"offered"`
	// Since is the first version that offers it: of Linux, or of Xen in its own ABI.
	Since string `json:"since,omitempty"`
	// Given says on what of the host's own it depends whether it is offered, up to the version
	// Always, or to this day where that is empty. Where nothing is said, each version from Since
	// on offers it.
	Given   string   `json:"given,omitempty"`
	Always  string   `json:"always,omitempty"`
	Sources []Source `json:"sources"`
}

// Owed is the first version that offers the feature whatever the host is like, empty where that is
// not known. It is false where no version does.
func (f Feature) Owed() (since string, ever bool) {
	if f.Given != "" {
		return f.Always, f.Always != ""
	}
	return f.Since, true
}

// Register is a model-specific or control register of the ABI.
type Register struct {
	Name   string `json:"name"`
	Number uint64 `json:"number"`
	Text   string `json:"text"`
	// Feature names the feature that gates the register, or is empty.
	Feature string `json:"feature,omitempty"`
	// Reserved has a bit set for each bit whose setting is refused with a
	// general protection fault.
	Reserved uint64 `json:"reserved"`
	// Enable has the bit set that turns on what the register is about, or is 0.
	Enable uint64 `json:"enable"`
	// Reset is the value after reset; Readable is false where a read does not
	// give back what was written.
	Reset    uint64 `json:"reset"`
	Readable bool   `json:"readable"`
	// Kept is true where an INIT of the CPU leaves the value, which it resets
	// otherwise.
	Kept bool `json:"kept,omitempty"`
	// Bits names further bits that have a meaning of their own.
	Bits    []RegisterBit `json:"bits,omitempty"`
	Sources []Source      `json:"sources"`
}

// RegisterBit is a bit with a meaning of its own in a register.
type RegisterBit struct {
	Name string `json:"name"`
	Bit  uint64 `json:"bit"`
	Text string `json:"text"`
}

// Bit returns the mask of a named bit of the register.
func (r Register) Bit(name string) uint64 {
	b := must(r.Bits, name, func(b RegisterBit) string { return b.Name }, "bit of", r.Name)
	return 1 << b.Bit
}

// Field is a member of a memory layout.
type Field struct {
	Name string `json:"name"`
	// Offset and Size are in bytes.
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"size"`
	// Writer is the side that writes the field, or "both" or "nobody".
	Writer string `json:"writer"`
	Text   string `json:"text"`
}

// Layout is a structure in memory that both sides share.
type Layout struct {
	Name string `json:"name"`
	// Size and Align are in bytes.
	Size   uint64  `json:"size"`
	Align  uint64  `json:"align"`
	Fields []Field `json:"fields"`
	// Bits names single bits of fields: "preempted.FLUSH_TLB".
	Bits    []FieldBit `json:"bits,omitempty"`
	Text    string     `json:"text"`
	Sources []Source   `json:"sources"`
}

// FieldBit is a bit with a meaning of its own in a field.
type FieldBit struct {
	Field string `json:"field"`
	Name  string `json:"name"`
	Bit   uint64 `json:"bit"`
	Text  string `json:"text"`
}

// Field returns the member with that name; an unknown name is a mistake in the
// caller and panics.
func (l Layout) Field(name string) Field {
	return must(l.Fields, name, func(f Field) string { return f.Name }, "field of", l.Name)
}

// Bit returns the mask of a named bit of a field.
func (l Layout) Bit(field, name string) uint64 {
	b := must(l.Bits, field+"."+name, func(b FieldBit) string { return b.Field + "." + b.Name }, "bit of", l.Name)
	return 1 << b.Bit
}

// Convention says how a call is made: by which instruction, with what in which
// register.
type Convention struct {
	// Name tells the convention's use: "long mode".
	Name string `json:"name"`
	// Instructions lists mnemonic and machine code of each form.
	Instructions []Instruction `json:"instructions"`
	// Number, Args and Result name registers, or fields of the instruction that
	// name registers. Result is empty where a call has no result, which then
	// counts as 0.
	Number string   `json:"number"`
	Args   []string `json:"args"`
	Result string   `json:"result"`
	// Width is the number of bits of the number and of each argument.
	Width   uint64   `json:"width"`
	Text    string   `json:"text"`
	Sources []Source `json:"sources"`
}

// Instruction is one encoding of the call instruction.
type Instruction struct {
	Mnemonic string `json:"mnemonic"`
	// Code is the machine code in hexadecimal: "0f01d9".
	Code string `json:"code"`
	// Length is the number of bytes of Code.
	Length uint64 `json:"length"`
	// When says on which processors the form is native.
	When string `json:"when"`
}

// Word is a number that discovery yields or uses: a leaf, a step, a signature.
type Word struct {
	Name    string   `json:"name"`
	Number  uint64   `json:"number"`
	Text    string   `json:"text"`
	Sources []Source `json:"sources"`
}

// Scheduling names what kick, wait, yield and preempted are on a platform. The
// portable checks work from it alone.
type Scheduling struct {
	// Kick and Yield name calls; Target is the position of the argument that
	// names the CPU. An empty name means that the platform has none.
	Kick        string `json:"kick"`
	KickTarget  uint64 `json:"kick_target"`
	Yield       string `json:"yield"`
	YieldTarget uint64 `json:"yield_target"`
	// Wait says which operation waits: the name of a call, or else an
	// instruction of the CPU's own.
	Wait string `json:"wait"`
	// Preempted is where a CPU's state is read. That is layout.field, or
	// layout.field.bit where one bit of the field tells; or the name of a call,
	// whose first argument names the CPU. Steal is layout.field. Area names the
	// register or call by which a guest registers the area. Each is empty where
	// the platform has none.
	Preempted string `json:"preempted"`
	Steal     string `json:"steal"`
	Area      string `json:"area"`
}

// Platform is one paravirtual ABI.
type Platform struct {
	// Name is the first part of the platform's rule ids.
	Name  string `json:"name"`
	Title string `json:"title"`
	// GOARCH lists the Go architectures whose guests speak the ABI.
	GOARCH []string `json:"goarch"`
	// ByteOrder of the shared memory: "little" or "big".
	ByteOrder   string       `json:"byte_order"`
	Scheduling  Scheduling   `json:"scheduling"`
	Discovery   []Word       `json:"discovery"`
	Conventions []Convention `json:"conventions"`
	Calls       []Call       `json:"calls"`
	Errors      []Errno      `json:"errors"`
	Features    []Feature    `json:"features"`
	Registers   []Register   `json:"registers"`
	Layouts     []Layout     `json:"layouts"`
	Rules       []Rule       `json:"rules"`
	// Silences are the portable questions that the platform's ABI does not
	// answer with a rule.
	Silences []Silence `json:"silences,omitempty"`

	// read is told of rows that are asked for, see Watched; nil for nobody.
	read func(path string)
}

// Call returns the call with that name; an unknown name panics.
func (p *Platform) Call(name string) Call {
	p.tell("calls", name)
	return p.call(name)
}

func (p *Platform) call(name string) Call {
	return must(p.Calls, name, func(c Call) string { return c.Name }, "call")
}

// HasCall tells whether the platform has a call of that name.
func (p *Platform) HasCall(name string) bool {
	return slices.ContainsFunc(p.Calls, func(c Call) bool { return c.Name == name })
}

// ConventionOf returns the calling convention by which a call is made; unknown
// names panic.
func (p *Platform) ConventionOf(call string) Convention {
	name := p.call(call).Convention
	if name == "" {
		return p.MainConvention()
	}
	return p.Convention(name)
}

// PreemptedField returns where preempted is read in memory: the layout, its
// field, and the bits of the field that tell. On a platform that asks by a call
// instead it panics.
func (p *Platform) PreemptedField() (Layout, Field, uint64) {
	at := strings.SplitN(p.Scheduling.Preempted, ".", 3)
	l := p.Layout(at[0])
	if len(at) < 2 {
		panic(fmt.Sprintf("abi: preempted of %s is no field: %q", p.Name, p.Scheduling.Preempted))
	}
	f := l.Field(at[1])
	if len(at) == 3 {
		return l, f, l.Bit(at[1], at[2])
	}
	return l, f, 1<<(8*f.Size) - 1
}

// Result returns what a call gives in the case that the named outcome is about;
// unknown names panic.
func (p *Platform) Result(call, when string) int64 {
	p.tell("calls", call, "outcomes", when)
	o := must(p.call(call).Outcomes, when, func(o Outcome) string { return o.When }, "outcome of", call)
	if o.Error != "" {
		return p.Errno(o.Error)
	}
	return o.Result
}

// Errno returns the result that stands for the named error; an unknown name
// panics.
func (p *Platform) Errno(name string) int64 {
	p.tell("errors", name)
	return must(p.Errors, name, func(e Errno) string { return e.Name }, "error").Result
}

// Feature returns the feature with that name; an unknown name panics.
func (p *Platform) Feature(name string) Feature {
	p.tell("features", name)
	return must(p.Features, name, func(f Feature) string { return f.Name }, "feature")
}

// Register returns the register with that name; an unknown name panics.
func (p *Platform) Register(name string) Register {
	p.tell("registers", name)
	return must(p.Registers, name, func(r Register) string { return r.Name }, "register")
}

// Layout returns the layout with that name; an unknown name panics.
func (p *Platform) Layout(name string) Layout {
	p.tell("layouts", name)
	return must(p.Layouts, name, func(l Layout) string { return l.Name }, "layout")
}

// Word returns the number of discovery with that name; an unknown name panics.
func (p *Platform) Word(name string) uint64 {
	p.tell("discovery", name)
	return must(p.Discovery, name, func(w Word) string { return w.Name }, "discovery word").Number
}

// Convention returns the calling convention with that name; an unknown name
// panics.
func (p *Platform) Convention(name string) Convention {
	p.tell("conventions", name)
	return must(p.Conventions, name, func(c Convention) string { return c.Name }, "calling convention")
}

// Rule returns the rule with that name ("topic/statement"); an unknown name
// panics.
func (p *Platform) Rule(name string) Rule {
	p.tell("rules", p.Name, name)
	return p.rule(name)
}

func (p *Platform) rule(name string) Rule {
	return must(p.Rules, name, Rule.Name, "rule")
}

// HasRule tells whether the platform has a rule of that name.
func (p *Platform) HasRule(name string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Name() == name })
}

// Want returns the named number that a rule demands; unknown names panic.
func (p *Platform) Want(rule, value string) int64 {
	p.tell("rules", p.Name, rule, "want", value)
	return must(p.rule(rule).Want, value, func(v Value) string { return v.Name }, "value of rule", rule).Number
}

// must finds a row by name. A miss is a mistake in the program, never in its
// input, so it panics; the engine turns that into an error of the equipment.
func must[T any](rows []T, name string, key func(T) string, what ...string) T {
	for _, row := range rows {
		if key(row) == name {
			return row
		}
	}
	panic(fmt.Sprintf("abi: no %s named %q", strings.Join(what, " "), name))
}
