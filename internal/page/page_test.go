package page

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
	"pvabi/conformance"
)

// runs are three runs of two platforms, two of the same target, with each verdict and
// with texts that would be markup.
func runs() []Named {
	result := func(rule string, side abi.Side, v conformance.Verdict) conformance.Result {
		return conformance.Result{Rule: rule, Side: side, Verdict: v, Expected: "<b>1</b>", Observed: "0 | 2", Reason: "</script><script>window.broken = true</script>",
			Evidence: map[string]any{"seen": []any{"a", 1}}}
	}
	run := func(target, platform, version string, results ...conformance.Result) *conformance.Run {
		return &conformance.Run{Target: target, Platform: platform, Implementer: conformance.Implementer{Name: "Linux KVM", Version: version}, Results: results}
	}
	old := run("x86-kvm", "x86-kvm", "6.12",
		result("x86-kvm/kick/wakes-waiter", abi.Hypervisor, conformance.Pass),
		result("x86-kvm/kick/self", abi.Hypervisor, conformance.Pass),
		result("x86-kvm/preempted/running", abi.Hypervisor, conformance.Unreached))
	young := run("x86-kvm", "x86-kvm", "7.2",
		result("x86-kvm/kick/wakes-waiter", abi.Hypervisor, conformance.Fail),
		result("x86-kvm/kick/self", abi.Hypervisor, conformance.Pass),
		result("x86-kvm/preempted/running", abi.Hypervisor, conformance.Pass))
	s390 := run("s390-qemu", "s390", "11.1",
		result("s390/yield/self", abi.Hypervisor, conformance.Deviates),
		result("s390/discovery/machine", abi.Hypervisor, conformance.Absent))
	dead := run("powerpc-qemu", "powerpc-papr", "", result("powerpc-papr/kick/self", abi.Hypervisor, conformance.Error))
	dead.Error = "the guest died <at once>"
	return []Named{{"old", old}, {"", s390}, {"young", dead}, {"young", young}}
}

func TestHTMLIsSelfContained(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, HTML(&b, runs()))
	for _, word := range []string{"http://", "https://", "src=", "<link", "@import", "url("} {
		assert.NotContains(t, b.String(), word)
	}
	assert.NotContains(t, b.String(), "</script><script>window")
	assert.NotContains(t, b.String(), "<at once>")
	_, data, _ := strings.Cut(b.String(), `id="data">`)
	data, _, _ = strings.Cut(data, "</script>")
	var v struct {
		Rules   map[string]rule               `json:"rules"`
		Results map[string]conformance.Result `json:"results"`
	}
	require.NoError(t, json.Unmarshal([]byte(data), &v))
	assert.Len(t, v.Results, 9)
	rules := 0
	for _, p := range abi.Platforms() {
		rules += len(p.Rules)
	}
	assert.Len(t, v.Rules, rules)
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Markdown(&b, runs()))
	text := b.String()
	for _, want := range []string{
		"| x86-kvm young | Linux KVM 7.2 | 2 | 1 | 0 | 0 | 0 | 0 | 0 |",
		"| kick/wakes-waiter | pass | no rule |  | fail |",
		"- **fail** x86-kvm `x86-kvm/kick/wakes-waiter`: expected &lt;b>1&lt;/b>, observed 0 \\| 2",
		"**powerpc-qemu failed**: the guest died &lt;at once>",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "- **error**")
}

// browser finds a Chromium.
func browser() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// TestPageInBrowser uses the page as a reader does: it filters, opens a verdict, compares
// two runs, and does so on a screen as small as a phone's, too.
func TestPageInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	program := browser()
	if program == "" {
		t.Skip("no Chromium on PATH; install chromium or chromium-headless-shell")
	}
	file := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, HTML(f, runs()))
	require.NoError(t, f.Close())

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	var problems []string
	number := func(script string) int {
		n, err := chromedp.Run(ctx, chromedp.Evaluate[int](script))
		require.NoError(t, err)
		return n
	}
	text := func(script string) string {
		s, err := chromedp.Run(ctx, chromedp.Evaluate[string](script))
		require.NoError(t, err)
		return s
	}
	do := func(actions ...chromedp.Action[chromedp.Void]) { require.NoError(t, chromedp.Do(ctx, actions...)) }
	const visible = `[...document.querySelectorAll("main tr[data-side]")].filter((r) => r.offsetParent).length`
	do(chromedp.Navigate("about:blank"))
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			problems = append(problems, e.ExceptionDetails.Text)
		}
	}))
	do(chromedp.Navigate("file://"+file), chromedp.WaitVisible("#portable"))
	all := number(visible)
	assert.Equal(t, len(abi.Questions())+3+2+1, all)
	assert.Equal(t, "undefined", text(`typeof window.broken`))

	// The filters.
	do(chromedp.SendKeys("#text", "wakes-waiter"))
	assert.Equal(t, 2, number(visible))
	assert.Equal(t, "2 rows", text(`document.getElementById("count").textContent`))
	choose := func(id, value string) {
		number(`(() => { const e = document.getElementById("` + id + `"); e.value = "` + value + `"; e.dispatchEvent(new Event("input", { bubbles: true })); return 0 })()`)
	}
	choose("text", "")
	choose("verdict", "fail")
	assert.Equal(t, 2, number(visible))
	choose("verdict", "")
	choose("side", "guest")
	assert.Equal(t, 0, number(visible))
	choose("side", "")
	choose("platform", "s390")
	assert.Equal(t, len(abi.Questions())+2, number(visible))
	choose("platform", "")

	// A verdict opens by keyboard, shows rule, sources and evidence, and closes.
	do(chromedp.Focus(`[data-detail="r2 x86-kvm/kick/wakes-waiter"]`),
		chromedp.KeyEvent("\r"), chromedp.WaitVisible("#detail[open]"))
	detail := text(`document.getElementById("detail").textContent`)
	p := abi.X86KVM().Rule("kick/wakes-waiter")
	for _, want := range []string{p.ID, p.Text, p.Sources[0].String(), "<b>1</b>", "pvabi run -rules 'kick/wakes-waiter' x86-kvm", `"seen"`} {
		assert.Contains(t, detail, want)
	}
	assert.Equal(t, "Close", text(`document.activeElement.textContent`))
	do(chromedp.KeyEvent("\r"), chromedp.WaitNotPresent("#detail[open]"))

	// So does a silence.
	do(chromedp.Click(`[data-silent="s390/kick/self"]`), chromedp.WaitVisible("#detail[open]"))
	assert.Contains(t, text(`document.getElementById("detail").textContent`), "There is no kick")
	do(chromedp.Click("#detail button"), chromedp.WaitNotPresent("#detail[open]"))

	// A comparison shows what changed, and what got worse.
	choose("before", "r1")
	choose("after", "r2")
	assert.Equal(t, 4, number(visible))
	assert.Equal(t, 2, number(`document.querySelectorAll("tr.worse").length`))
	assert.Equal(t, 4, number(`document.querySelectorAll("tr.changed").length`))

	// So does one of all runs of two sources, target by target, which says what cannot be compared.
	choose("before", "from old")
	choose("after", "from young")
	assert.Equal(t, 4, number(visible))
	assert.Equal(t, 2, number(`document.querySelectorAll("tr.worse").length`))
	assert.Equal(t, 2, number(`document.querySelectorAll("td.worse[data-run=r2]").length`))
	assert.Equal(t, "4 rows; in one only: powerpc-qemu", text(`document.getElementById("count").textContent`))
	choose("before", "r1") // with all of young
	assert.Equal(t, 4, number(visible))
	choose("before", "")
	assert.Equal(t, all, number(visible))

	// On a phone nothing but the tables is wider than the screen.
	do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	assert.LessOrEqual(t, number(`document.documentElement.scrollWidth`), 360)
	pdf, err := chromedp.Run(ctx, chromedp.PrintToPDF())
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(pdf, []byte("%PDF")))
	assert.Empty(t, problems)
}
