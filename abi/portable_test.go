package abi

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuestions(t *testing.T) {
	unique(t, "question", Questions(), func(q Question) string { return q.Name })
	for _, q := range Questions() {
		assert.Regexp(t, `^[A-Z].*\?$`, q.Text, q.Name)
	}
}

// Every platform answers every question, by a rule that the question's check can
// work from or by a silence that says why not.
func TestEveryQuestionIsAnswered(t *testing.T) {
	table := Portable(Platforms()...)
	require.Len(t, table.Rows, len(Questions()))
	for _, row := range table.Rows {
		require.Len(t, row.Answers, len(Platforms()))
		for _, a := range row.Answers {
			switch {
			case a.Rule != nil:
				var names []string
				for _, v := range a.Rule.Want {
					names = append(names, v.Name)
				}
				assert.Subset(t, names, row.Question.Values, "%s: values of %s", row.Question.Name, a.Rule.ID)
			case a.Silence != nil:
				assert.Equal(t, row.Question.Name, a.Silence.Question)
			default:
				t.Errorf("%s: got no answer of %s, want a rule or a silence", row.Question.Name, a.Platform)
			}
		}
	}
}

func TestSilencesAnswerQuestions(t *testing.T) {
	known := make(map[string]bool)
	for _, q := range Questions() {
		known[q.Name] = true
	}
	each(t, func(t *testing.T, p *Platform) {
		for _, s := range p.Silences {
			assert.True(t, known[s.Question], "%s: want a portable question", s.Question)
		}
	})
}

func TestHistory(t *testing.T) {
	var threads []string
	last := ""
	for _, h := range History().Threads {
		assert.GreaterOrEqual(t, h.Date, last[:min(len(last), len(h.Date))], "%s: want the oldest first", h.Subject)
		last = h.Date
		threads = append(threads, h.Subject)
		assert.NotEmpty(t, h.Platforms, h.Subject)
		for _, name := range h.Platforms {
			assert.True(t, slices.ContainsFunc(Platforms(), func(p *Platform) bool { return p.Name == name }), "%s: platform %s", h.Subject, name)
		}
		sentence(t, h.Subject, h.Proposed)
		sentence(t, h.Subject, h.Ended)
		cited(t, h.Subject, h.Sources)
	}
	last = ""
	for _, p := range History().Proposals {
		where := p.Date + " " + p.Name
		assert.Regexp(t, `^20\d\d(-\d\d)?$`, p.Date, where)
		assert.GreaterOrEqual(t, p.Date, last[:min(len(last), len(p.Date))], "%s: want the oldest first", where)
		last = p.Date
		assert.Contains(t, threads, p.Thread, where)
		assert.NotEmpty(t, p.Platform, where)
		assert.Contains(t, []string{"call", "feature", "register", "layout"}, p.Kind, where)
		sentence(t, where, p.Today)
		sentence(t, where, p.Collision)
		cited(t, where, p.Sources)
	}
}

// The history speaks of today's numbers; those that a table here has must agree.
func TestHistoryAgreesWithTables(t *testing.T) {
	p := X86KVM()
	assert.EqualValues(t, 5, p.Call("KICK_CPU").Number)
	for _, n := range []uint64{6, 7, 8} {
		for _, c := range p.Calls {
			assert.False(t, c.Number == n && !c.Undefined, "call %d: want it undefined", n)
		}
	}
	assert.EqualValues(t, 6, p.Feature("PV_EOI").Bit)
	assert.EqualValues(t, 7, p.Feature("PV_UNHALT").Bit)
	assert.EqualValues(t, 9, p.Feature("PV_TLB_FLUSH").Bit)
	assert.EqualValues(t, 0x4b564d04, p.Register("PV_EOI_EN").Number)
	assert.EqualValues(t, 0x2, p.Register("PV_EOI_EN").Reserved)
	assert.EqualValues(t, 16, p.Layout("kvm_steal_time").Field("preempted").Offset)

	l := LoongArch()
	assert.EqualValues(t, 1, l.Call("IPI").Number)
	assert.EqualValues(t, 2, l.Call("NOTIFY").Number)
	for _, n := range []uint64{0, 3} {
		for _, c := range l.Calls {
			assert.NotEqual(t, n, c.Number, "%s: want function %d undefined", c.Name, n)
		}
	}
	assert.EqualValues(t, 3, l.Feature("PREEMPT").Bit)
	for _, f := range l.Features {
		assert.NotZero(t, f.Bit, "%s: want bit 0 undefined", f.Name)
	}
	assert.Equal(t, "hvcl 0x100", l.Conventions[0].Instructions[0].Mnemonic)
	assert.EqualValues(t, 4, l.Call("NOTIFY").Arg("what").Value("STEAL_TIME"), "1 shifted by the bit of STEAL_TIME")
}
