package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string           `xml:"name,attr"`
	Tests      int              `xml:"tests,attr"`
	Failures   int              `xml:"failures,attr"`
	Errors     int              `xml:"errors,attr"`
	Skipped    int              `xml:"skipped,attr"`
	Time       string           `xml:"time,attr"`
	Properties *junitProperties `xml:"properties"`
	Cases      []junitCase      `xml:"testcase"`
	SystemErr  string           `xml:"system-err,omitempty"`
}

type junitProperties struct {
	Properties []junitProperty `xml:"property"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Error   *junitText `xml:"error"`
	Skipped *junitText `xml:"skipped"`
	Out     string     `xml:"system-out,omitempty"`
}

// junitText is a failure, an error, or what was skipped. Viewers list the message, and show the text
// where they are asked for it.
type junitText struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML: one suite per target, one case per
// rule. A deviation counts as passed and says so in the case's output.
func (r *Report) WriteJUnit(w io.Writer) error {
	var doc junitSuites
	for _, run := range r.Runs {
		s := junitSuite{Name: run.Target, Time: seconds(run.Seconds.Total), SystemErr: clean(strings.Join(run.Console, "\n"))}
		for _, p := range [][2]string{
			{"implementer", run.Implementer.Name + " " + run.Implementer.Version},
			{"guest", run.Guest.Release}, {"qemu", run.QEMU.Version}, {"command", run.QEMU.Command},
		} {
			if value := strings.TrimSpace(clean(p[1])); value != "" {
				if s.Properties == nil {
					s.Properties = new(junitProperties)
				}
				s.Properties.Properties = append(s.Properties.Properties, junitProperty{p[0], value})
			}
		}
		if run.Unreached != "" || run.Error != "" {
			c := junitCase{Class: run.Target, Name: "target", Time: "0"}
			if run.Error != "" {
				c.Error = &junitText{Message: clean(run.Error), Type: string(Error)}
				s.Errors++
			} else {
				c.Skipped = &junitText{Message: clean(run.Unreached)}
				s.Skipped++
			}
			s.Cases = append(s.Cases, c)
		}
		for _, res := range run.Results {
			c := junitCase{Class: run.Target, Name: res.Rule, Time: seconds(res.Seconds)}
			switch res.Verdict {
			case Fail:
				c.Failure = &junitText{
					Message: strings.Join(strings.Fields(clean(fmt.Sprintf("expected %s; observed %s", res.Expected, res.Observed))), " "), Type: string(Fail),
					Text: clean(strings.TrimSpace(fmt.Sprintf("expected %s\nobserved %s\n%s", res.Expected, res.Observed, res.Reason))),
				}
				s.Failures++
			case Error:
				c.Error = &junitText{Message: clean(res.Reason), Type: string(Error)}
				s.Errors++
			case Absent, Unreached:
				c.Skipped = &junitText{Message: clean(string(res.Verdict) + ": " + res.Reason)}
				s.Skipped++
			case Deviates, Mended:
				c.Out = clean(fmt.Sprintf("%s: %s: %s", res.Verdict, res.Deviation, res.Observed))
			}
			s.Cases = append(s.Cases, c)
		}
		s.Tests = len(s.Cases)
		doc.Suites = append(doc.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", " ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

// clean drops what XML 1.0 cannot hold: a console has control characters.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
