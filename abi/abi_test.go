package abi

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// each runs a test on every platform.
func each(t *testing.T, f func(t *testing.T, p *Platform)) {
	for _, p := range Platforms() {
		t.Run(p.Name, func(t *testing.T) { f(t, p) })
	}
}

// unique fails where two rows have the same key.
func unique[T any](t *testing.T, what string, rows []T, key func(T) string) {
	t.Helper()
	seen := make(map[string]bool)
	for _, row := range rows {
		k := key(row)
		assert.NotEmpty(t, k, "%s without a name", what)
		assert.False(t, seen[k], "%s %q: got it twice, want it once", what, k)
		seen[k] = true
	}
}

// sentence fails where text is not whole sentences.
func sentence(t *testing.T, where, text string) {
	t.Helper()
	assert.Regexp(t, `^[A-Z0-9].*\.$`, text, "%s: want sentences", where)
	assert.NotContains(t, text, "  ", "%s: want single spaces", where)
}

func cited(t *testing.T, where string, sources []Source) {
	t.Helper()
	assert.NotEmpty(t, sources, "%s: want a source", where)
	for _, s := range sources {
		assert.NotEmpty(t, s.Tree, "%s: source without a tree", where)
		assert.NotEmpty(t, s.Path, "%s: source without a path", where)
		assert.False(t, strings.HasPrefix(s.Path, "/"), "%s: %s: want a path inside the tree", where, s.Path)
	}
}

func TestNamesAreUnique(t *testing.T) {
	unique(t, "platform", Platforms(), func(p *Platform) string { return p.Name })
	each(t, func(t *testing.T, p *Platform) {
		unique(t, "discovery word", p.Discovery, func(w Word) string { return w.Name })
		unique(t, "convention", p.Conventions, func(c Convention) string { return c.Name })
		unique(t, "call", p.Calls, func(c Call) string { return c.Name })
		unique(t, "error", p.Errors, func(e Errno) string { return e.Name })
		unique(t, "feature", p.Features, func(f Feature) string { return f.Name })
		unique(t, "register", p.Registers, func(r Register) string { return r.Name })
		unique(t, "layout", p.Layouts, func(l Layout) string { return l.Name })
		unique(t, "rule", p.Rules, func(r Rule) string { return r.ID })
		unique(t, "silence", p.Silences, func(s Silence) string { return s.Question })
		for _, r := range p.Rules {
			unique(t, r.ID+": value", r.Want, func(v Value) string { return v.Name })
		}
		for _, c := range p.Calls {
			unique(t, c.Name+": outcome", c.Outcomes, func(o Outcome) string { return o.When })
			unique(t, c.Name+": argument", c.Args, func(a Arg) string { return a.Name })
		}
		for _, l := range p.Layouts {
			unique(t, l.Name+": field", l.Fields, func(f Field) string { return f.Name })
		}
	})
}

func TestNumbersAreUnique(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		type number struct {
			convention string
			number     uint64
		}
		calls, registers := make(map[number]string), make(map[uint64]string)
		for _, c := range p.Calls {
			at := number{c.Convention, c.Number}
			assert.Empty(t, calls[at], "%s: call %d is taken", c.Name, c.Number)
			calls[at] = c.Name
		}
		for _, r := range p.Registers {
			assert.Empty(t, registers[r.Number], "%s: register %#x is taken", r.Name, r.Number)
			registers[r.Number] = r.Name
		}
		results := make(map[int64]string)
		for _, e := range p.Errors {
			assert.Empty(t, results[e.Result], "%s: result %d is taken", e.Name, e.Result)
			results[e.Result] = e.Name
		}
		type bit struct {
			word string
			bit  uint64
		}
		taken := make(map[bit]string)
		for _, f := range p.Features {
			at := bit{f.Word, f.Bit}
			assert.Empty(t, taken[at], "%s: bit %d of %s is taken", f.Name, f.Bit, f.Word)
			taken[at] = f.Name
		}
	})
}

func TestRules(t *testing.T) {
	id := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*/[a-z]+(-[a-z]+)*/[a-z0-9]+(-[a-z0-9]+)*$`)
	each(t, func(t *testing.T, p *Platform) {
		require.NotEmpty(t, p.Rules)
		for _, r := range p.Rules {
			assert.Regexp(t, id, r.ID)
			assert.True(t, strings.HasPrefix(r.ID, p.Name+"/"), "%s: want the platform's name first", r.ID)
			assert.Contains(t, []Side{Hypervisor, Guest}, r.Side, r.ID)
			sentence(t, r.ID, r.Text)
			cited(t, r.ID, r.Sources)
			for _, need := range r.Needs {
				assert.NotPanics(t, func() { p.Feature(need) }, "%s needs %q", r.ID, need)
			}
			assert.Equal(t, r.ID, p.Rule(r.Name()).ID)
			assert.True(t, p.HasRule(r.Name()))
			assert.Equal(t, p.Name+"/"+r.Name(), r.ID)
			assert.True(t, strings.HasPrefix(r.Name(), r.Topic()+"/"))
			for _, v := range r.Want {
				assert.Equal(t, v.Number, p.Want(r.Name(), v.Name))
			}
		}
		assert.False(t, p.HasRule("no/such-rule"))
	})
}

func TestRowsAreComplete(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		assert.NotEmpty(t, p.Title)
		assert.NotEmpty(t, p.GOARCH)
		assert.Contains(t, []string{"little", "big"}, p.ByteOrder)
		for _, w := range p.Discovery {
			sentence(t, w.Name, w.Text)
			cited(t, w.Name, w.Sources)
		}
		for _, c := range p.Conventions {
			sentence(t, c.Name, c.Text)
			cited(t, c.Name, c.Sources)
			for _, i := range c.Instructions {
				assert.Len(t, i.Code, 2*int(i.Length), "%s, %s: hexadecimal digits of the code", c.Name, i.Mnemonic)
			}
		}
		for _, e := range p.Errors {
			sentence(t, e.Name, e.Text)
			cited(t, e.Name, e.Sources)
		}
		for _, f := range p.Features {
			sentence(t, f.Name, f.Text)
			cited(t, f.Name, f.Sources)
			assert.Contains(t, []string{"kernel", "vmm", "nobody"}, f.Offered, f.Name)
		}
		for _, r := range p.Registers {
			sentence(t, r.Name, r.Text)
			cited(t, r.Name, r.Sources)
			assert.Zero(t, r.Reset&r.Reserved, "%s: reset sets reserved bits", r.Name)
			assert.Zero(t, r.Enable&r.Reserved, "%s: enabling sets reserved bits", r.Name)
			for _, b := range r.Bits {
				sentence(t, r.Name+"."+b.Name, b.Text)
				assert.Zero(t, r.Bit(b.Name)&r.Enable, "%s.%s: got it twice, want it in Enable only", r.Name, b.Name)
				assert.Equal(t, uint64(1)<<b.Bit, r.Bit(b.Name))
				assert.Zero(t, r.Bit(b.Name)&r.Reserved, "%s.%s is reserved", r.Name, b.Name)
			}
			if r.Feature != "" {
				assert.NotPanics(t, func() { p.Feature(r.Feature) }, r.Name)
			}
		}
		for _, s := range p.Silences {
			sentence(t, s.Question, s.Why)
			cited(t, s.Question, s.Sources)
			assert.False(t, p.HasRule(s.Question), "%s: got a silence and a rule, want one of them", s.Question)
		}
	})
}

func TestCalls(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		for _, c := range p.Calls {
			sentence(t, c.Name, c.Text)
			cited(t, c.Name, c.Sources)
			if c.Undefined {
				assert.Empty(t, c.Outcomes, "%s is not on the platform", c.Name)
				continue
			}
			assert.NotEmpty(t, c.Outcomes, "%s: want outcomes", c.Name)
			if c.Feature != "" {
				assert.NotPanics(t, func() { p.Feature(c.Feature) }, c.Name)
			}
			if c.Convention == "" {
				assert.Equal(t, p.Conventions[0], p.ConventionOf(c.Name))
			} else {
				assert.Equal(t, c.Convention, p.ConventionOf(c.Name).Name)
			}
			assert.True(t, p.HasCall(c.Name))
			for _, a := range c.Args {
				sentence(t, c.Name+", "+a.Name, a.Text)
				assert.Equal(t, a, c.Arg(a.Name))
				unique(t, c.Name+", "+a.Name+": value", a.Values, func(v Value) string { return v.Name })
				for _, v := range a.Values {
					assert.Equal(t, v.Number, a.Value(v.Name))
				}
			}
			for _, o := range c.Outcomes {
				if o.Error == "" {
					assert.Equal(t, o.Result, p.Result(c.Name, o.When))
					continue
				}
				assert.Zero(t, o.Result, "%s, %s: want the number in the table of errors only", c.Name, o.When)
				assert.Equal(t, p.Errno(o.Error), p.Result(c.Name, o.When))
			}
		}
	})
}

func TestScheduling(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		s := p.Scheduling
		if s.Kick != "" {
			assert.Less(t, s.KickTarget, uint64(len(p.Call(s.Kick).Args)), "position of the target of a kick")
		}
		if s.Yield != "" {
			assert.Less(t, s.YieldTarget, uint64(len(p.Call(s.Yield).Args)), "position of the target of a yield")
		}
		if at := s.Steal; at != "" {
			layout, field, _ := strings.Cut(at, ".")
			assert.NotPanics(t, func() { p.Layout(layout).Field(field) }, at)
		}
		if p.HasCall(s.Preempted) {
			assert.NotEmpty(t, p.Call(s.Preempted).Args, "preempted is a call: want a first argument that names the CPU")
			assert.Panics(t, func() { p.PreemptedField() })
			return
		}
		l, f, mask := p.PreemptedField()
		assert.True(t, strings.HasPrefix(s.Preempted, l.Name+"."+f.Name), "%s: got the field %s.%s", s.Preempted, l.Name, f.Name)
		assert.NotZero(t, mask)
		assert.LessOrEqual(t, bits.Len64(mask), int(8*f.Size), "%s: bits of the field", s.Preempted)
	})
}

// What the portable checks find on each platform.
func TestSchedulingOfPlatforms(t *testing.T) {
	for _, c := range []struct {
		p              *Platform
		kick, waitCall bool
		preempted      string // "" where it is a call
		mask           uint64
	}{
		{X86KVM(), true, false, "kvm_steal_time.preempted", 0xff},
		{LoongArch(), true, false, "kvm_steal_time.preempted", 1},
		{PowerPCPAPR(), true, true, "lppaca.yield_count", 1},
		{S390(), false, false, "", 0},
		{X86Xen(), true, true, "vcpu_runstate_info.state", 0xffffffff},
	} {
		t.Run(c.p.Name, func(t *testing.T) {
			assert.Equal(t, c.kick, c.p.HasCall(c.p.Scheduling.Kick), "the kick is a call")
			assert.Equal(t, c.waitCall, c.p.HasCall(c.p.Scheduling.Wait), "the wait is a call")
			require.Equal(t, c.preempted == "", c.p.HasCall(c.p.Scheduling.Preempted), "preempted is a call")
			if c.preempted != "" {
				l, f, mask := c.p.PreemptedField()
				assert.Equal(t, c.preempted, l.Name+"."+f.Name)
				assert.Equal(t, c.mask, mask)
			}
		})
	}
}

// Whole fields of any size are found, not only bytes and bits.
func TestPreemptedFieldOfAnySize(t *testing.T) {
	p := PowerPCPAPR()
	for field, want := range map[string]uint64{"idle": 0xff, "slb_count": 0xffff, "yield_count": 0xffffffff, "dtl_idx": ^uint64(0)} {
		p.Scheduling.Preempted = "lppaca." + field
		_, f, mask := p.PreemptedField()
		assert.Equal(t, field, f.Name)
		assert.Equal(t, want, mask, field)
	}
}

// The portable checks ask for the results of kick and yield by what the target does,
// in the same words on every platform that has a rule about it.
func TestPortableOutcomes(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		s := p.Scheduling
		for _, when := range []string{"self", "running target", "waiting target", "absent target"} {
			if s.Kick != "" {
				assert.NotPanics(t, func() { p.Result(s.Kick, when) }, "%s, %s", s.Kick, when)
			}
			if question := "yield/" + strings.ReplaceAll(when, " ", "-"); s.Yield != "" && p.HasRule(question) {
				assert.NotPanics(t, func() { p.Result(s.Yield, when) }, "%s, %s", s.Yield, when)
			}
		}
	})
}

// Fields follow each other without a gap, so that every byte has an owner.
func TestLayouts(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		for _, l := range p.Layouts {
			sentence(t, l.Name, l.Text)
			cited(t, l.Name, l.Sources)
			assert.Equal(t, 1, bits.OnesCount64(l.Align), "%s: want an alignment that is a power of two, got %d", l.Name, l.Align)
			end := uint64(0)
			for _, f := range l.Fields {
				assert.Equal(t, end, f.Offset, "%s.%s: offset", l.Name, f.Name)
				assert.Contains(t, []string{"hypervisor", "guest", "both", "nobody"}, f.Writer, "%s.%s", l.Name, f.Name)
				sentence(t, l.Name+"."+f.Name, f.Text)
				end = f.Offset + f.Size
			}
			assert.Equal(t, l.Size, end, "%s: end of the last field", l.Name)
			for _, b := range l.Bits {
				assert.Less(t, b.Bit, 8*l.Field(b.Field).Size, "%s.%s.%s", l.Name, b.Field, b.Name)
				assert.Equal(t, uint64(1)<<b.Bit, l.Bit(b.Field, b.Name))
				sentence(t, l.Name+"."+b.Field+"."+b.Name, b.Text)
			}
		}
	})
}

func TestEveryNumberCanBeSet(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		t.Parallel()
		before := p.Numbers()
		require.NotEmpty(t, before)
		unique(t, "path", before, func(n Number) string { return n.Path })
		c, want := p.Clone(), slices.Clone(before)
		for i, n := range before {
			for _, value := range []int64{n.Value + 1, math.MinInt64, -1} {
				require.NoError(t, c.Set(n.Path, value))
				want[i].Value = value
				if got := c.Numbers(); !slices.Equal(want, got) {
					require.Equal(t, want, got, "after setting %s to %d", n.Path, value)
				}
			}
			require.NoError(t, c.Set(n.Path, n.Value))
			want[i] = n
		}
		assert.Equal(t, p, c, "after setting every number back")
		assert.Equal(t, before, p.Numbers(), "the original after changes to its clone")
	})
}

// Each value is changed, each mutation can be made, and can be told from the others.
func TestMutations(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		t.Parallel()
		all := p.Mutations()
		unique(t, "mutation", all, func(m Mutation) string { return fmt.Sprint(m) })
		values, changed, c := map[string]int64{}, map[string]bool{}, p.Clone()
		for _, n := range p.Numbers() {
			values[n.Path] = n.Value
		}
		for _, m := range all {
			assert.NotEqual(t, m.Was, m.Is, m.Path)
			changed[m.Path] = true
			if was, number := values[m.Path]; number {
				assert.Equal(t, was, m.Was, m.Path)
			} else {
				continue // what is no number is looked at below
			}
			require.NoError(t, c.Set(m.Path, m.Is))
			require.NoError(t, c.Set(m.Path, m.Was))
		}
		assert.Equal(t, p, c, "after setting every value back")
		for path := range values {
			outcome := strings.TrimSuffix(path, "result")
			assert.True(t, changed[path] || changed[outcome+"error"], "%s is not changed", path)
		}
	})
}

// What is not a number: an outcome's error, and truth.
func TestMutationsOfOtherValues(t *testing.T) {
	p := X86KVM()
	const refused, readable = "calls/SEND_IPI/outcomes/no APIC map/error", "registers/STEAL_TIME/readable"
	changed := p.Clone()
	for _, path := range []string{refused, readable} {
		i := slices.IndexFunc(p.Mutations(), func(m Mutation) bool { return m.Path == path })
		require.GreaterOrEqual(t, i, 0, path)
		require.NoError(t, changed.Set(path, p.Mutations()[i].Is))
	}
	assert.NotEqual(t, p.Result("SEND_IPI", "no APIC map"), changed.Result("SEND_IPI", "no APIC map"))
	assert.NotEqual(t, p.Register("STEAL_TIME").Readable, changed.Register("STEAL_TIME").Readable)
}

func TestWatched(t *testing.T) {
	var read []string
	p := X86KVM().Watched(func(path string) { read = append(read, path) })
	p.Result("SEND_IPI", "no APIC map")
	p.Want("kick/two-kicks", "wakes")
	p.ConventionOf("KICK_CPU")
	p.Layout("pv_eoi")
	assert.Equal(t, []string{
		"calls/SEND_IPI/outcomes/no APIC map", "errors/EOPNOTSUPP", "rules/x86-kvm/kick/two-kicks/want/wakes", "conventions/long mode", "layouts/pv_eoi",
	}, read)
}

func TestSetUnknownNumber(t *testing.T) {
	p := X86KVM()
	for _, path := range []string{"", "calls", "calls/KICK_CPU", "calls/NO_SUCH_CALL/number", "name"} {
		assert.ErrorContains(t, p.Set(path, 1), `x86-kvm has no number at "`+path+`"`)
	}
	assert.Equal(t, X86KVM(), p)
}

func TestClone(t *testing.T) {
	each(t, func(t *testing.T, p *Platform) {
		c := p.Clone()
		require.Equal(t, p, c)
		c.GOARCH[0] = "other"
		c.Rules[0].Sources[0].Tree = "other"
		c.Calls[0].Outcomes[0].When = "other"
		c.Layouts[0].Fields[0].Name = "other"
		assert.NotEqual(t, "other", p.GOARCH[0])
		assert.NotEqual(t, "other", p.Rules[0].Sources[0].Tree)
		assert.NotEqual(t, "other", p.Calls[0].Outcomes[0].When)
		assert.NotEqual(t, "other", p.Layouts[0].Fields[0].Name)
	})
}

// A value that a caller changes is nobody else's.
func TestPlatformsAreFresh(t *testing.T) {
	for i, p := range Platforms() {
		want := p.Clone()
		for _, n := range p.Numbers() {
			require.NoError(t, p.Set(n.Path, n.Value^0x55))
		}
		for j := range p.Rules {
			for k := range p.Rules[j].Sources {
				p.Rules[j].Sources[k].Note = "changed"
			}
		}
		assert.Equal(t, want, Platforms()[i])
	}
}

func TestUnknownNamesPanic(t *testing.T) {
	p := X86KVM()
	for want, f := range map[string]func(){
		`abi: no call named "X"`:                            func() { p.Call("X") },
		`abi: no argument of KICK_CPU named "X"`:            func() { p.Call("KICK_CPU").Arg("X") },
		`abi: no value of argument flags named "X"`:         func() { p.Call("KICK_CPU").Arg("flags").Value("X") },
		`abi: no outcome of KICK_CPU named "X"`:             func() { p.Result("KICK_CPU", "X") },
		`abi: no error named "X"`:                           func() { p.Errno("X") },
		`abi: no feature named "X"`:                         func() { p.Feature("X") },
		`abi: no register named "X"`:                        func() { p.Register("X") },
		`abi: no bit of STEAL_TIME named "X"`:               func() { p.Register("STEAL_TIME").Bit("X") },
		`abi: no layout named "X"`:                          func() { p.Layout("X") },
		`abi: no field of pv_eoi named "X"`:                 func() { p.Layout("pv_eoi").Field("X") },
		`abi: no bit of pv_eoi named "word.X"`:              func() { p.Layout("pv_eoi").Bit("word", "X") },
		`abi: no discovery word named "X"`:                  func() { p.Word("X") },
		`abi: no calling convention named "X"`:              func() { p.Convention("X") },
		`abi: no rule named "x/y"`:                          func() { p.Rule("x/y") },
		`abi: no value of rule kick/wakes-waiter named "X"`: func() { p.Want("kick/wakes-waiter", "X") },
	} {
		assert.PanicsWithValue(t, want, f)
	}
}

func TestSourceString(t *testing.T) {
	for want, s := range map[string]Source{
		"Linux 7.2.12, a.c":            {Tree: "Linux 7.2.12", Path: "a.c"},
		"Linux 7.2.12, a.c, f":         {Tree: "Linux 7.2.12", Path: "a.c", Symbol: "f"},
		"Linux 7.2.12, a.c, f (so so)": {Tree: "Linux 7.2.12", Path: "a.c", Symbol: "f", Note: "so so"},
	} {
		assert.Equal(t, want, s.String())
	}
}
