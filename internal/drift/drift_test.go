package drift

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pvabi/abi"
)

// world makes the headers that a table wants, so that they say just what abi does.
func world(t table) map[string]string {
	p := t.abi()
	want := map[string]int64{}
	for _, n := range p.Numbers() {
		want[n.Path] = n.Value
	}
	var b strings.Builder
	enum := []string{}
	seen := map[string]bool{}
	define := func(name, text string) {
		if !seen[name] {
			seen[name] = true
			fmt.Fprintf(&b, "#define %s %s\n", name, text)
		}
	}
	for _, x := range t.bindings(p) {
		n := want[x.number]
		name := identifiers(x.c)[len(identifiers(x.c))-1]
		switch {
		case x.what == exists:
			enum = append(enum, x.c)
		case x.what == bit && !strings.Contains(x.c, " "):
			define(x.c, fmt.Sprintf("(1UL << %d)", n))
		case x.what != value:
		case strings.Contains(x.c, "KVM_SIGNATURE"):
			define("KVM_SIGNATURE", `"KVMKVMKVM\0\0\0"`)
			if p.Name == "loongarch-kvm" {
				b.WriteString("#undef KVM_SIGNATURE\n#define KVM_SIGNATURE \"KVM\\0\"\n")
			}
		case strings.Contains(x.c, "CPUCFG_KVM_SIZE"):
			define("CPUCFG_KVM_SIZE", "0x100")
		case strings.Contains(x.c, "SIGP_STATUS_"):
			define("SIGP_CC_STATUS_STORED", "1")
			define(name, fmt.Sprint(n&(1<<32-1)))
		case strings.Contains(x.c, "SIGP_CC_"):
			define(identifiers(x.c)[2], fmt.Sprint(n>>32))
		case strings.HasPrefix(x.c, "-"):
			define(x.c[1:], fmt.Sprint(-n))
		default:
			define(x.c, fmt.Sprintf("%#xUL", uint64(n)))
		}
	}
	if len(enum) > 0 {
		fmt.Fprintf(&b, "enum codes { %s };\n", strings.Join(enum, ", "))
	}
	structs := map[string]bool{}
	for _, x := range t.bindings(p) {
		tag, _, _ := strings.Cut(x.c, ".")
		if x.what != size && x.what != offset || structs[tag] {
			continue
		}
		structs[tag] = true
		l := p.Layout(tag)
		fmt.Fprintf(&b, "struct %s {\n", tag)
		for _, f := range l.Fields {
			fmt.Fprintf(&b, "\tu8 %s[%d];\n", cName(t, l, f), f.Size)
		}
		b.WriteString("};\n")
	}
	files := map[string]string{}
	for _, h := range t.headers {
		files[h.file] = ""
	}
	// The last header is read as C in all tables.
	files[t.headers[len(t.headers)-1].file] = b.String()
	return files
}

// cName is what the tree calls a field.
func cName(t table, l abi.Layout, f abi.Field) string {
	for _, b := range t.bindings(t.abi()) {
		if b.number == "layouts/"+l.Name+"/fields/"+f.Name+"/offset" {
			_, name, _ := strings.Cut(b.c, ".")
			return name
		}
	}
	return f.Name
}

// tree is a file system with the files.
func tree(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func kinds(p Platform) map[Kind]int {
	out := map[Kind]int{}
	for _, f := range p.Findings {
		out[f.Kind]++
	}
	return out
}

func TestTreeThatAgrees(t *testing.T) {
	for _, table := range tables() {
		t.Run(table.abi().Name, func(t *testing.T) {
			got, err := table.tree(tree(world(table)), "7.2.12")
			require.NoError(t, err)
			assert.Empty(t, got.Findings)
			assert.Equal(t, len(table.bindings(table.abi())), got.Held)
			assert.Greater(t, got.Held, 20)
		})
	}
}

// TestEveryNumberIsHeld changes each bound number of abi, and wants the tree to differ
// there and nowhere else.
func TestEveryNumberIsHeld(t *testing.T) {
	for _, table := range tables() {
		p := table.abi()
		t.Run(p.Name, func(t *testing.T) {
			files := tree(world(table))
			bindings := table.bindings(p)
			u, err := table.read(files, bindings)
			require.NoError(t, err)
			for i, b := range bindings {
				if b.what == exists {
					continue // the name comes from the number
				}
				var want int64
				for _, n := range p.Numbers() {
					if n.Path == b.number {
						want = n.Value
					}
				}
				l := u.look(i, b)
				_, ok := judge(p, b, want, l, "7.2.12")
				assert.True(t, ok, b.number)
				f, ok := judge(p, b, want^1, l, "7.2.12")
				assert.False(t, ok, b.number)
				assert.Equal(t, Differs, f.Kind, b.number)
				assert.Contains(t, f.String(), b.number)
			}
		})
	}
}

func TestTreeThatMoved(t *testing.T) {
	const last = "arch/x86/include/asm/pvclock-abi.h"
	tests := map[string]struct {
		old, new string
		version  string
		want     map[Kind]int
		says     string
	}{
		"number":           {"#define KVM_HC_KICK_CPU 0x5UL", "#define KVM_HC_KICK_CPU 0x6UL", "7.2.12", map[Kind]int{Differs: 1}, "calls/KICK_CPU/number: abi has 5, KVM_HC_KICK_CPU is 6"},
		"error's sign":     {"#define KVM_ENOSYS 1000", "#define KVM_ENOSYS -1000", "7.2.12", map[Kind]int{Differs: 1}, "-KVM_ENOSYS is 1000"},
		"bit":              {"#define KVM_VCPU_FLUSH_TLB (1UL << 1)", "#define KVM_VCPU_FLUSH_TLB (1UL << 2)", "7.2.12", map[Kind]int{Differs: 1}, "preempted.FLUSH_TLB"},
		"mask of two bits": {"#define KVM_VCPU_FLUSH_TLB (1UL << 1)", "#define KVM_VCPU_FLUSH_TLB 3", "7.2.12", map[Kind]int{Differs: 1}, "preempted.FLUSH_TLB"},
		"signature":        {`"KVMKVMKVM\0\0\0"`, `"KVMKVMKVN\0\0\0"`, "7.2.12", map[Kind]int{Differs: 1}, "signature-edx"},
		"gone":             {"#define KVM_HC_SEND_IPI 0xaUL\n", "", "7.2.12", map[Kind]int{Gone: 1}, "there is no KVM_HC_SEND_IPI"},
		"not there yet":    {"#define KVM_HC_SEND_IPI 0xaUL\n", "", "4.18.0", map[Kind]int{Later: 1}, "since 4.19"},
		"new call":         {"#define KVM_HC_KICK_CPU 0x5UL", "#define KVM_HC_KICK_CPU 0x5UL\n#define KVM_HC_SUPER_KICK 13", "7.2.12", map[Kind]int{New: 1}, "KVM_HC_SUPER_KICK is 13"},
		"new enumerator":   {"#define KVM_HC_KICK_CPU 0x5UL", "#define KVM_HC_KICK_CPU 0x5UL\nenum { KVM_HC_SUPER_KICK = 13 };", "7.2.12", map[Kind]int{New: 1}, "KVM_HC_SUPER_KICK is 13"},
		"new member":       {"\tu8 u8_pad[3];", "\tu8 priority;\n\tu8 u8_pad[2];", "7.2.12", map[Kind]int{New: 1, Differs: 2}, "kvm_steal_time.priority is 1 bytes at 17"},
		"larger":           {"\tu8 pad[44];", "\tu8 pad[48];", "7.2.12", map[Kind]int{Differs: 2}, "sizeof kvm_steal_time is 68"},
		"renamed member":   {"\tu8 preempted[1];", "\tu8 taken[1];", "7.2.12", map[Kind]int{New: 1, Gone: 2}, "there is no offsetof kvm_steal_time.preempted"},
		"struct gone":      {"struct kvm_clock_pairing {", "struct kvm_clock_pair {", "7.2.12", map[Kind]int{Gone: 11}, "sizeof kvm_clock_pairing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			table := x86KVM()
			files := world(table)
			require.Contains(t, files[last], test.old)
			files[last] = strings.Replace(files[last], test.old, test.new, 1)
			got, err := table.tree(tree(files), test.version)
			require.NoError(t, err)
			assert.Equal(t, test.want, kinds(got), fmt.Sprint(got.Findings))
			r := Report{Source: "tree", Platforms: []Platform{got}}
			assert.Contains(t, r.Text(), test.says)
			assert.Equal(t, test.want[Later] == 0, r.Drifted())
		})
	}
}

func TestTreeThatCannotBeRead(t *testing.T) {
	table := powerpcPAPR()
	files := world(table)
	delete(files, "arch/powerpc/include/asm/lppaca.h")
	_, err := table.tree(tree(files), "7.2.12")
	assert.ErrorContains(t, err, "header arch/powerpc/include/asm/lppaca.h is missing")
	assert.ErrorIs(t, err, fs.ErrNotExist)

	files = world(table)
	files["arch/powerpc/include/asm/dtl.h"] += "struct {{{"
	_, err = table.tree(tree(files), "7.2.12")
	assert.ErrorContains(t, err, "dtl.h:")

	table = loongArch()
	files = world(table)
	delete(files, table.headers[0].file)
	got, err := table.tree(tree(files), "6.1.172")
	assert.NoError(t, err)
	assert.Equal(t, map[Kind]int{Later: 1}, kinds(got))
	_, err = table.tree(tree(files), "6.13.0")
	assert.ErrorContains(t, err, "is missing")

	_, err = Tree(t.TempDir())
	assert.ErrorContains(t, err, "is no Linux tree")
}

func TestDocuments(t *testing.T) {
	tests := map[string]struct {
		table table
		file  string
		text  string
		want  []string
	}{
		"section":   {x86KVM(), "Documentation/virt/kvm/x86/hypercalls.rst", "5. KVM_HC_KICK_CPU\n7. KVM_HC_SEND_IPI\n", []string{"section 7 describes KVM_HC_SEND_IPI (its number is 10)"}},
		"label":     {x86KVM(), "Documentation/virt/kvm/x86/msr.rst", "MSR_KVM_STEAL_TIME:\n\t0x4b564d03\n\nMSR_KVM_PV_EOI_EN:\n\t0x4b564d05\n", []string{"MSR_KVM_PV_EOI_EN is said to be 0x4b564d05"}},
		"column":    {x86KVM(), "Documentation/virt/kvm/x86/cpuid.rst", "KVM_FEATURE_PV_EOI   6   text\nKVM_FEATURE_PV_UNHALT   8   text\n", []string{"KVM_FEATURE_PV_UNHALT is said to be 8"}},
		"name":      {x86KVM(), "Documentation/virt/kvm/x86/msr.rst", "MSR_KVM_EOI_EN:\nMSR_KVM_PV_EOI_EN, MSR_KVM_*\n", []string{"MSR_KVM_EOI_EN (no header has it)"}},
		"structure": {x86KVM(), "Documentation/virt/kvm/x86/hypercalls.rst", "\"struct kvm_clock_offset\" and struct kvm_clock_pairing\n", []string{"struct kvm_clock_offset (no header has it)"}},
		"leaf":      {x86KVM(), "Documentation/virt/kvm/x86/msr.rst", "0x40000001 cpuid\n0x4000001 cpuid\n0x4b564d01\n", []string{"leaf 0x4000001"}},
		"diagnose":  {s390(), "Documentation/virt/kvm/s390/s390-diag.rst", "DIAGNOSE function code 'X'44 - a\nDIAGNOSE function code 'X'777 - b\n", []string{"DIAGNOSE 0x777", "DIAGNOSE 0x9c (YIELD_TO)"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := world(test.table)
			files[test.file] = test.text
			got, err := test.table.tree(tree(files), "7.2.12")
			require.NoError(t, err)
			r := Report{Source: "tree", Platforms: []Platform{got}}
			assert.False(t, r.Drifted())
			for _, w := range test.want {
				assert.Contains(t, r.Text(), w)
				assert.Contains(t, r.Markdown(), strings.Split(w, " (")[0])
			}
			if name != "diagnose" {
				assert.Len(t, got.Findings, len(test.want), r.Text())
			}
		})
	}
}

// TestKnownNames demands that a name is known for one reason only.
func TestKnownNames(t *testing.T) {
	for _, table := range tables() {
		bound := map[string]bool{}
		for _, b := range table.bindings(table.abi()) {
			for _, n := range identifiers(b.c) {
				bound[n] = true
			}
		}
		for _, f := range table.families {
			for _, n := range slices.Sorted(maps.Keys(f.known)) {
				assert.False(t, bound[n], "%s: %s is bound and known", table.abi().Name, n)
				assert.True(t, strings.HasPrefix(n, f.prefix), n)
			}
		}
	}
}

func TestOlder(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"6.1.0", "6.13", true}, {"6.13", "6.13", false}, {"6.13.1", "6.13", false}, {"7.2.12+deb14", "6.13", false},
		{"4.18-rc1", "4.19", true}, {"", "4.19", true}, {"4.19.0", "4.9", false},
	} {
		assert.Equal(t, test.want, older(test.a, test.b), "%s before %s", test.a, test.b)
	}
}
