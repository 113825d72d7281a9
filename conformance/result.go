package conformance

import "pvabi/abi"

// Verdict is what a run found about one rule.
type Verdict string

// The verdicts.
const (
	Pass      Verdict = "pass"      // looked, and the rule holds
	Fail      Verdict = "fail"      // looked, and it does not
	Deviates  Verdict = "deviates"  // fails as a listed deviation says
	Mended    Verdict = "mended"    // a listed deviation no longer shows
	Absent    Verdict = "absent"    // the implementer does not offer the feature
	Unreached Verdict = "unreached" // could not be looked at here
	Error     Verdict = "error"     // the equipment failed
)

// Verdicts lists all verdicts in the order in which totals are printed.
var Verdicts = []Verdict{Pass, Fail, Deviates, Mended, Absent, Unreached, Error}

// Looked tells whether the verdict comes from having looked at the rule.
func (v Verdict) Looked() bool {
	switch v {
	case Pass, Fail, Deviates, Mended:
		return true
	}
	return false
}

// Result is what a run found about one rule, and why.
type Result struct {
	Rule     string   `json:"rule"`
	Side     abi.Side `json:"side"`
	Verdict  Verdict  `json:"verdict"`
	Expected string   `json:"expected"`
	Observed string   `json:"observed"`
	// Evidence has the raw values that the verdict was judged from.
	Evidence map[string]any `json:"evidence,omitempty"`
	// Deviation is the id of the deviation that explains the verdict.
	Deviation string `json:"deviation"`
	// Reason says why the rule was not looked at, or what failed.
	Reason string `json:"reason"`
	// Mutant is the change to the platform's table that the check was held against,
	// PATH=NUMBER; empty for the table as it is.
	Mutant string `json:"mutant,omitempty"`
	// Look is which look at the rule found a verdict that is not the first look's,
	// from 2; 0 for the first.
	Look int `json:"look,omitempty"`
	// Seconds is what the check took that judged the rule, shared evenly among
	// the rules that it judged.
	Seconds float64 `json:"seconds"`
}

// Identity is who a guest says that it is. It is the first event of a run.
type Identity struct {
	GOARCH  string `json:"goarch"`
	Machine string `json:"machine"` // uname -m
	Release string `json:"release"` // uname -r
	Version string `json:"version"` // uname -v
	CPUs    int    `json:"cpus"`    // online
	// Hypervisor is the signature of the hypervisor below the guest, where
	// the platform has one.
	Hypervisor string `json:"hypervisor,omitempty"`
	// Xen is the Xen below the guest; nil where that is none.
	Xen         *XenIdentity `json:"xen,omitempty"`
	CommandLine string       `json:"command_line"`
}

// XenIdentity is a Xen as it shows itself to a guest, and what the guest is to it.
type XenIdentity struct {
	Version string `json:"version"` // "4.20.5-pre"
	// BuildID tells its build from all others, in lower-case hexadecimal. It is empty where
	// there is none.
	BuildID string `json:"build_id,omitempty"`
	// GuestType is "PV", "PVH" or "HVM".
	GuestType string `json:"guest_type"`
	// Dom0 says that the guest is the one that has the machine's devices.
	Dom0 bool `json:"dom0"`
}

// Event is one message from the agent to whoever runs it. Exactly one of its
// fields is set.
type Event struct {
	Identity *Identity `json:"identity,omitempty"`
	// Loaded comes when the guest's modules are loaded and checks begin.
	Loaded *Loaded `json:"loaded,omitempty"`
	Result *Result `json:"result,omitempty"`
	// Measured is what a cost came to.
	Measured *Measured `json:"measured,omitempty"`
	// Fatal says why the agent could not go on: its equipment failed.
	Fatal string `json:"fatal,omitempty"`
	// Unreached says why no rule of the target can be looked at in this guest.
	Unreached string `json:"unreached,omitempty"`
	// Alive says that a check which takes long gets on: a guest that tells nothing is given up.
	Alive bool `json:"alive,omitempty"`
	// Note is something that a reader of the report should know: a retry.
	Note string `json:"note,omitempty"`
	// Mutated is a change to the platform's table and what became of it.
	Mutated *Mutated `json:"mutated,omitempty"`
	// Shown is something that the guest shows of itself, for whoever has to judge it.
	Shown *Shown `json:"shown,omitempty"`
	// Part is a piece of something that was seen, for whoever has to judge it.
	Part *Part `json:"part,omitempty"`
	// Finished is the last event; a run without it is incomplete.
	Finished bool `json:"finished,omitempty"`
}

// Shown is a text, a file of the guest's for one, and what it is known by.
type Shown struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Loaded tells what the guest did before its checks.
type Loaded struct {
	Modules []Module `json:"modules"`
	Seconds float64  `json:"seconds"`
	// Implementer is the version of the code under test as the guest sees it.
	Implementer string `json:"implementer"`
}

// Module is a kernel module that the agent loaded.
type Module struct {
	Name    string  `json:"name"`
	SHA256  string  `json:"sha256"`
	Seconds float64 `json:"seconds"`
}
