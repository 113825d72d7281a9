package abi

// A Question is asked of every platform alike. A platform answers by a rule of
// the question's name, which one check per question serves, or by a [Silence].
type Question struct {
	// Name is the name of the rules that answer: "topic/statement".
	Name string `json:"name"`
	// Text is the question.
	Text string `json:"text"`
	// Values are the numbers that the rules that answer have in Want.
	Values []string `json:"values,omitempty"`
}

// Silence is a portable question to which a platform's ABI has no rule.
type Silence struct {
	// Question is the name of the question.
	Question string `json:"question"`
	// Why says what there is instead, or why there is nothing.
	Why     string   `json:"why"`
	Sources []Source `json:"sources"`
}

// Questions lists the portable questions.
func Questions() []Question {
	return []Question{
		{"kick/wakes-waiter", "Does a kick end the wait of a CPU that waits?", []string{"wakes"}},
		{"kick/before-wait", "Is a kick that comes before the wait kept, so that the wait ends at once?", []string{"latched"}},
		{"kick/two-kicks", "How many waits do two kicks before two waits end?", []string{"wakes"}},
		{"kick/self", "Does a kick of the calling CPU itself end its own next wait?", []string{"latched"}},
		{"kick/running-target", "How many later waits does a kick of a running CPU end?", []string{"returns"}},
		{"kick/absent-target", "What does a kick of a CPU that does not exist do?", []string{"wakes"}},
		{"wait/sleeps-without-kick", "Does a wait that nothing ends go on?", []string{"returns"}},
		{"wait/ended-by-interrupt", "Does an interrupt end a wait?", []string{"returns"}},
		{"wait/interrupt-eats-kick", "Is a kick still kept after an interrupt has ended a wait?", []string{"latched"}},
		{"yield/self", "What does a yield to the calling CPU itself give?", nil},
		{"yield/running-target", "What does a yield to a running CPU give?", nil},
		{"yield/waiting-target", "What does a yield to a waiting CPU give?", nil},
		{"yield/absent-target", "What does a yield to a CPU that does not exist give?", nil},
		{"yield/does-not-wake", "Does a yield end the wait of its target?", []string{"wakes"}},
		{"preempted/running", "What is preempted of a running CPU?", []string{"preempted"}},
		{"preempted/descheduled", "What is preempted of a CPU that the host has taken its CPU from?", []string{"preempted"}},
		{"preempted/waiting", "What is preempted of a CPU that waits?", []string{"preempted"}},
		{"preempted/offline", "What is preempted of a CPU that the guest holds offline?", []string{"preempted"}},
		{"steal/monotonic", "Does steal time ever run backwards?", []string{"decreases"}},
		{"privilege/user-refused", "What does a call without privilege give?", nil},
		{"privilege/user-has-no-effect", "Does a kick without privilege wake its target?", []string{"wakes"}},
	}
}

// PortableTable holds platforms side by side.
type PortableTable struct {
	// Platforms are the columns.
	Platforms []Column `json:"platforms"`
	Rows      []Row    `json:"rows"`
}

// Column says what kick, wait, yield and preempted are on one platform.
type Column struct {
	Platform   string     `json:"platform"`
	Scheduling Scheduling `json:"scheduling"`
}

// Row is one question and what each platform answers, in the columns' order.
type Row struct {
	Question Question `json:"question"`
	Answers  []Answer `json:"answers"`
}

// Answer is what one platform answers: a rule or a silence. Both are nil where
// the platform's table has neither.
type Answer struct {
	Platform string   `json:"platform"`
	Rule     *Rule    `json:"rule,omitempty"`
	Silence  *Silence `json:"silence,omitempty"`
}

// Portable puts the answers of platforms side by side.
func Portable(platforms ...*Platform) *PortableTable {
	t := new(PortableTable)
	for _, p := range platforms {
		t.Platforms = append(t.Platforms, Column{Platform: p.Name, Scheduling: p.Scheduling})
	}
	for _, q := range Questions() {
		row := Row{Question: q}
		for _, p := range platforms {
			row.Answers = append(row.Answers, p.Answer(q.Name))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Answer returns what the platform answers to the question of that name.
func (p *Platform) Answer(question string) Answer {
	a := Answer{Platform: p.Name}
	for i := range p.Rules {
		if p.Rules[i].Name() == question {
			a.Rule = &p.Rules[i]
		}
	}
	for i := range p.Silences {
		if p.Silences[i].Question == question {
			a.Silence = &p.Silences[i]
		}
	}
	return a
}
