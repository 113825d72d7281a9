package model

// x86Further are the rules of later topics that mutants of earlier ones break, too, by the name of the
// mutant, and those that they keep from being judged.
var x86Further = map[string]struct{ rules, controls []string }{
	"user-call-accepted":        {[]string{"convention/foreign-instruction-user"}, nil},
	"user-refused-enosys":       {[]string{"convention/foreign-instruction-user"}, nil},
	"undefined-accepted":        {[]string{"discovery/pv-unhalt-withdrawn"}, nil},
	"enosys-is-38":              {[]string{"discovery/pv-unhalt-withdrawn"}, nil},
	"result-32-bits":            {[]string{"ipi/bad-command", "discovery/pv-unhalt-withdrawn", "convention/foreign-instruction-user"}, nil},
	"vapic-poll-refused":        {[]string{"convention/foreign-instruction-not-fixed"}, nil},
	"send-ipi-lost":             {[]string{"ipi/counts-each", "ipi/high-word", "ipi/absent-ids", "ipi/lowest-boundaries", "ipi/lowest-wraps", "ipi/lowest-high-half", "ipi/nmi", "ipi/apic-off", "ipi/protected-mode", "kick/remote-read-send-ipi"}, nil},
	"send-ipi-not-self":         {[]string{"ipi/counts-each", "ipi/absent-ids"}, nil},
	"send-ipi-uncounted":        {[]string{"ipi/counts-each", "ipi/high-word", "ipi/absent-ids", "ipi/lowest-boundaries", "ipi/lowest-wraps", "ipi/lowest-high-half", "ipi/nmi", "ipi/apic-off", "ipi/protected-mode"}, nil},
	"send-ipi-bitmap-from-zero": {[]string{"ipi/high-word", "ipi/absent-ids", "ipi/lowest-boundaries", "ipi/lowest-wraps", "ipi/lowest-high-half", "ipi/protected-mode"}, nil},
	"send-ipi-empty-invalid":    {[]string{"ipi/lowest-boundaries", "ipi/apic-off"}, nil},
	"gate-ignored":              {[]string{"discovery/pv-unhalt-withdrawn"}, nil},
	"gate-refuses-offered":      {[]string{"kick/remote-read-send-ipi"}, []string{"discovery/pv-unhalt-withdrawn"}},
	"gate-wrong-feature":        {nil, []string{"discovery/pv-unhalt-withdrawn"}},
	"gate-needs-another":        {[]string{"kick/remote-read-send-ipi"}, nil},
	"clobbers-rcx":              {[]string{"convention/protected-mode", "convention/real-mode"}, nil},
	"lost-kick":                 {[]string{"kick/broadcast", "kick/race"}, nil},
	"lost-kick-before-wait":     {[]string{"kick/race"}, nil},
	"kick-never-consumed":       {nil, []string{"kick/race"}},
	"kick-needs-interrupts":     {[]string{"kick/broadcast", "kick/remote-read-command", "kick/remote-read-send-ipi", "kick/race"}, nil},
	"kick-by-index":             {[]string{"kick/broadcast", "kick/race"}, nil},
	"kick-id-4-bits":            {[]string{"kick/broadcast"}, nil},
	"kick-absent-error":         {nil, []string{"discovery/pv-unhalt-withdrawn"}},
	"wait-does-not-sleep":       {nil, []string{"kick/broadcast", "kick/remote-read-command", "kick/remote-read-send-ipi", "kick/race"}},
	"wait-ended-by-anything":    {nil, []string{"kick/broadcast", "kick/remote-read-command", "kick/remote-read-send-ipi"}},
	"interrupt-lost":            {[]string{"async-pf/wakes-all-when-enabled", "async-pf/ready", "async-pf/held-while-apic-off"}, nil},
	"nmi-lost":                  {[]string{"ipi/nmi"}, nil},
}
