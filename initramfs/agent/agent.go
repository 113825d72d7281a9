// Package agent is the guest's half of a run: it says who the guest is, loads
// the kernel modules of a target, has the target's suite look at its rules, and
// sends what was found to whoever runs the guest.
//
// The protocol has one direction. The agent sends conformance.Event values, in
// this order:
//
//	Identity            always first
//	Loaded              once the modules are there; or Unreached or Fatal
//	Result, Note        in any number, as the suite finds them; or Measured, Shown, Part
//	Unreached or Fatal  when the suite cannot begin, or go on
//	Finished            always last, unless the guest dies
//
// In a guest that pvabi boots, the agent is PID 1, is told what to do by the
// kernel's command line ("pvabi.target=x86-kvm pvabi.modules=kvm,kvm_amd"),
// and sends each event as one line of JSON over a virtio-serial port, in the
// manner of github.com/hugelgupf/vmtest/guest. On a machine that is already
// running, it is an ordinary process, takes the same words as arguments, and
// prints the lines.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pvabi/conformance"
)

// Port is the name of the virtio-serial port that a guest's events go to.
const Port = "pvabi"

// MutantsFile is the file, in an image, of the words of a job's mutants. A kernel's command line has no room
// for many.
const MutantsFile = "etc/pvabi-mutants"

// ChannelWord begins the word of the kernel's command line that names the device, a serial port,
// which the events go to where there is no virtio-serial port.
const ChannelWord = "pvabi.channel="

// MailboxPrefix begins, behind ChannelWord, the size of the memory, in bytes, of a machine of package
// pcvm, by whose mailbox the events go.
const MailboxPrefix = "mailbox:"

// Failed begins the console's line that says why an agent that nobody can hear gave
// up.
const Failed = "pvabi: agent failed:"

// ChannelModules are what the event channel takes where a kernel has it not built in,
// in the order in which they are loaded.
var ChannelModules = []string{"virtio_pci", "virtio_console"}

// Suite looks at the rules of one target, in the guest, and emits what it finds:
// results and notes, or that the target is unreached. An error is a failure of
// its equipment. It may call emit from several goroutines.
type Suite func(ctx context.Context, job Job, emit func(conformance.Event)) error

// Job is what an agent is to do.
type Job struct {
	// Target names the suite.
	Target string
	// Modules are the kernel modules to load, in this order, without those that
	// the kernel has built in.
	Modules []string
	// Needs are files that must exist once the modules are loaded, such as
	// /dev/kvm. Without one of them the target is unreached.
	Needs []string
	// Implementer is the version of the code under test where the guest cannot know it:
	// that of the emulator below. Empty stands for the guest's own kernel.
	Implementer string
	// Scenario tells a suite what to do, where it has more than one thing to do in a guest.
	Scenario string
	// Share is which of Shares parts of its work a suite does, from 1, where several guests do it beside each
	// other; 0 of 0 is all of it.
	Share, Shares int
	// Kernel is where in the guest's memory the kernel is, an ELF file, that an agent boots as a guest of its own.
	Kernel Region
	// End is how the guest ends when the job is done; empty for EndPowerOff.
	End string
	// Only selects rules, see Selected; none selects all.
	Only []string
	// Mutants are changes to the platform's table. When the checks have been held
	// against the table as it is, they are held against it with each of these
	// changes, one at a time.
	Mutants []Mutant
	// Looks is how often the checks are held against the table as it is; 0 is once.
	// Of all but the first time only the verdicts that are others are told.
	Looks int
	// Rounds is how often the costs of a target are measured. If it is not 0, no rule is looked at.
	Rounds int
	// Mutate, where it is not 0, has every value of the platform's table changed, one at a
	// time, and the checks held against each such table, from the Number on that it is: see
	// conformance.Mutate.
	Mutate int
}

// How a guest ends.
const (
	EndPowerOff = "poweroff"
	EndReboot   = "reboot"
	// EndKexec enters another kernel, one that does no more than power off, or tell who watches.
	EndKexec = "kexec"
	EndPanic = "panic"
	// EndCrash panics with such a kernel to come after.
	EndCrash = "crash"
)

// Mutant is a change of one number of a platform's table.
type Mutant struct {
	// Path is the number's, as abi.Platform.Numbers lists it.
	Path  string
	Value int64
	// Only selects the rules to look at, as in a Job.
	Only []string
}

// String is PATH=NUMBER.
func (m Mutant) String() string { return fmt.Sprintf("%s=%d", m.Path, m.Value) }

// Selected tells whether a rule, by its name topic/statement, is selected by one of
// the patterns, which are those of path.Match. No patterns select every rule.
func Selected(patterns []string, rule string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, rule)
		return ok && err == nil
	})
}

// Words are the words that tell a job to an agent, on the kernel's command
// line or as arguments. ParseJob is the inverse.
func (j Job) Words() []string {
	words := []string{"pvabi.target=" + j.Target}
	if len(j.Modules) > 0 {
		words = append(words, "pvabi.modules="+strings.Join(j.Modules, ","))
	}
	if len(j.Needs) > 0 {
		words = append(words, "pvabi.needs="+strings.Join(j.Needs, ","))
	}
	if j.Implementer != "" {
		words = append(words, "pvabi.implementer="+j.Implementer)
	}
	if j.Scenario != "" {
		words = append(words, "pvabi.scenario="+j.Scenario)
	}
	if j.Shares > 0 {
		words = append(words, ShareWord(j.Share, j.Shares))
	}
	if j.Kernel != (Region{}) {
		words = append(words, j.Kernel.Word())
	}
	if j.End != "" {
		words = append(words, "pvabi.end="+j.End)
	}
	if len(j.Only) > 0 {
		words = append(words, "pvabi.only="+strings.Join(j.Only, ","))
	}
	if j.Looks > 1 {
		words = append(words, "pvabi.looks="+strconv.Itoa(j.Looks))
	}
	if j.Rounds > 0 {
		words = append(words, "pvabi.rounds="+strconv.Itoa(j.Rounds))
	}
	if j.Mutate > 0 {
		words = append(words, "pvabi.mutate="+strconv.Itoa(j.Mutate))
	}
	return append(words, MutantWords(j.Mutants)...)
}

// ShareWord is the word of a job's that tells of its share.
func ShareWord(share, shares int) string { return fmt.Sprintf("pvabi.share=%d/%d", share, shares) }

// Region is memory of a guest's that its kernel leaves alone, in bytes.
type Region struct{ Address, Size int64 }

// Word is the word of a job's that says that its Kernel is in a region.
func (r Region) Word() string { return fmt.Sprintf("pvabi.kernel=%#x,%d", r.Address, r.Size) }

// MutantWords are those of a job's words that are about its mutants, a word for each.
func MutantWords(mutants []Mutant) []string {
	var words []string
	for _, m := range mutants {
		// The names of a table's rows have blanks, which end a word.
		words = append(words, "pvabi.mutant="+url.QueryEscape(fmt.Sprintf("%s %s", m, strings.Join(m.Only, ","))))
	}
	return words
}

// ParseJob finds a job among words, of which it knows those that begin with
// "pvabi.". One of these that it does not know is an error: whoever wrote it
// expects something of it.
func ParseJob(words []string) (Job, error) {
	var j Job
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		key, ours := strings.CutPrefix(key, "pvabi.")
		if !ours {
			continue
		}
		list := slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return s == "" })
		switch key {
		case "target":
			j.Target = value
		case "channel": // ChannelWord, which is not part of a job
		case "modules":
			j.Modules = list
		case "needs":
			j.Needs = list
		case "implementer":
			j.Implementer = value
		case "scenario":
			j.Scenario = value
		case "end":
			j.End = value
		case "only":
			j.Only = list
		case "looks", "rounds", "mutate":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return Job{}, fmt.Errorf("%q: want a number from 1", word)
			}
			*map[string]*int{"looks": &j.Looks, "rounds": &j.Rounds, "mutate": &j.Mutate}[key] = n
		case "share":
			if n, err := fmt.Sscanf(value+"\n", "%d/%d\n", &j.Share, &j.Shares); n != 2 || err != nil || j.Share < 1 || j.Share > j.Shares {
				return Job{}, fmt.Errorf("%q: want i/n with i from 1 to n", word)
			}
		case "kernel":
			if n, err := fmt.Sscanf(value+"\n", "0x%x,%d\n", &j.Kernel.Address, &j.Kernel.Size); n != 2 || err != nil || j.Kernel.Size < 1 {
				return Job{}, fmt.Errorf("%q: want an address in hexadecimal and a size", word)
			}
		case "mutant":
			m, err := parseMutant(value)
			if err != nil {
				return Job{}, fmt.Errorf("%q: %w", word, err)
			}
			j.Mutants = append(j.Mutants, m)
		default:
			return Job{}, fmt.Errorf("%q is no option of this agent", word)
		}
	}
	if j.Target == "" {
		return Job{}, fmt.Errorf("no pvabi.target among %q", words)
	}
	return j, nil
}

func parseMutant(word string) (Mutant, error) {
	text, err := url.QueryUnescape(word)
	if err != nil {
		return Mutant{}, err
	}
	end := strings.LastIndex(text, " ")
	equals := strings.LastIndex(text[:max(end, 0)], "=")
	if equals < 0 {
		return Mutant{}, errors.New("no change of a number: want PATH=NUMBER and the rules to look at")
	}
	m := Mutant{Path: text[:equals]}
	if only := text[end+1:]; only != "" {
		m.Only = strings.Split(only, ",")
	}
	if m.Value, err = strconv.ParseInt(text[equals+1:end], 10, 64); err != nil {
		return Mutant{}, err
	}
	return m, nil
}

// system is the guest as the agent sees it.
type system interface {
	identity() (conformance.Identity, error)
	// load loads one kernel module; all that it depends on is loaded.
	load(name string) (conformance.Module, error)
	// exists tells whether there is a file.
	exists(name string) bool
	// log returns the last lines of the kernel's log.
	log(lines int) []string
}

// do does a job: it emits all events from Identity to Finished.
func do(ctx context.Context, sys system, job Job, suites map[string]Suite, emit func(conformance.Event)) {
	var mu sync.Mutex
	send := func(e conformance.Event) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range fit(e) {
			emit(e)
		}
	}
	defer send(conformance.Event{Finished: true})
	defer func() {
		if r := recover(); r != nil {
			send(conformance.Event{Fatal: fmt.Sprintf("panic in the agent: %v\n%s", r, head(string(debug.Stack()), 40))})
		}
	}()

	id, err := sys.identity()
	send(conformance.Event{Identity: &id})
	if err != nil {
		send(conformance.Event{Fatal: "find out who the guest is: " + err.Error()})
		return
	}
	suite, ok := suites[job.Target]
	if !ok {
		send(conformance.Event{Fatal: fmt.Sprintf("the agent for %s knows no target %q", id.GOARCH, job.Target)})
		return
	}
	loaded, reason := load(sys, job)
	if reason != "" {
		send(conformance.Event{Unreached: reason})
		return
	}
	// What a kernel's modules do is the kernel's doing, what a Xen does is Xen's.
	loaded.Implementer = cmp.Or(job.Implementer, id.Release)
	if id.Xen != nil {
		loaded.Implementer = id.Xen.Version
	}
	send(conformance.Event{Loaded: &loaded})
	if err := suite(ctx, job, send); err != nil {
		send(conformance.Event{Fatal: err.Error()})
	}
}

// load loads the job's modules. A reason tells why that did not give what the
// job needs.
func load(sys system, job Job) (loaded conformance.Loaded, reason string) {
	start := time.Now()
	for _, name := range job.Modules {
		m, err := sys.load(name)
		if err != nil {
			return loaded, fmt.Sprintf("the kernel does not load module %s: %v%s", name, err, kernelSays(sys))
		}
		loaded.Modules = append(loaded.Modules, m)
	}
	for _, name := range job.Needs {
		if !sys.exists(name) {
			with := "no modules loaded"
			if len(job.Modules) > 0 { // and the log may tell why they did not help
				with = "modules " + strings.Join(job.Modules, ", ") + " loaded" + kernelSays(sys)
			}
			return loaded, fmt.Sprintf("the guest has no %s, with %s", name, with)
		}
	}
	loaded.Seconds = time.Since(start).Seconds()
	return loaded, ""
}

func kernelSays(sys system) string {
	lines := sys.log(5)
	if len(lines) == 0 {
		return ""
	}
	return "; the kernel's log ends with:\n" + strings.Join(lines, "\n")
}

// head returns the first lines of a text.
func head(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[:min(lines, len(all))], "\n")
}

// MaxEvent bounds an event's JSON in bytes. The other end of the channel reads
// lines of less than 64 KiB (bufio.MaxScanTokenSize) with an envelope of some
// 60 bytes around each event.
const MaxEvent = 60 << 10

// fit makes an event fit into a line. It shortens what is longest, evidence
// first, and tells so in a note that goes before the event.
func fit(e conformance.Event) []conformance.Event {
	size := jsonSize(e)
	if size <= MaxEvent {
		return []conformance.Event{e}
	}
	what := "an event"
	if e.Result != nil {
		r := *e.Result
		what = "the result of " + r.Rule
		keys := make([]string, 0, len(r.Evidence))
		sizes := make(map[string]int, len(r.Evidence))
		for k, v := range r.Evidence {
			keys = append(keys, k)
			sizes[k] = jsonSize(v)
		}
		slices.SortFunc(keys, func(a, b string) int { return sizes[b] - sizes[a] })
		evidence := maps.Clone(r.Evidence)
		for over := size - MaxEvent; over > 0 && len(keys) > 0; keys = keys[1:] {
			left := fmt.Sprintf("left out: %d bytes", sizes[keys[0]])
			evidence[keys[0]] = left
			over -= sizes[keys[0]] - jsonSize(left)
		}
		r.Evidence, e.Result = evidence, &r
		if jsonSize(e) > MaxEvent {
			r.Evidence = nil
		}
		r.Expected, r.Observed, r.Reason = shorten(r.Expected), shorten(r.Observed), shorten(r.Reason)
	}
	e.Fatal, e.Unreached, e.Note = shorten(e.Fatal), shorten(e.Unreached), shorten(e.Note)
	note := fmt.Sprintf("%s was %d bytes long and was shortened to fit into %d", what, size, MaxEvent)
	return []conformance.Event{{Note: note}, e}
}

// shorten shortens a text so that three of them fit into an event, whatever
// JSON makes of it: at worst six bytes of one.
func shorten(text string) string {
	const limit = MaxEvent / 4 / 6
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + " [...]"
}

// jsonSize returns the length of a value as JSON in bytes. What cannot be JSON
// is a mistake of the suite that made it, and is seen as a panic.
func jsonSize(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("an event that cannot be sent: %v", err))
	}
	return len(b)
}
