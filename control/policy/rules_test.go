// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"mpbond/base/config"
	"mpbond/base/fault"
)

const sampleRules = `
default = "allow"

[[rule]]
name = "voice"
domain = ["meet.example.org"]
port = ["443", "3478-3481"]
mode = "latency"

[[rule]]
name = "no telemetry"
domain = ["telemetry.example.org", "*.ads.example.com"]
mode = "block"

[[rule]]
name = "home"
address = ["192.168.0.0/16", "fd00::/8", "203.0.113.7"]
mode = "direct"

[[rule]]
name = "backups"
app = ["/usr/bin/rsync", "restic*"]
uid = [0, 1000]
mode = "bond"

[[rule]]
name = "work"
label = ["work"]
mode = "redundant"

[[rule]]
name = "services"
cgroup = ["/system.slice/*.service"]
mode = "direct"

[[rule]]
port = [25]
mode = "block"
`

func compile(t testing.TB, text string) *Rules {
	t.Helper()
	var f File
	if err := config.Parse("policy.toml", []byte(text), &f); err != nil {
		t.Fatalf("%v; %s", err, fault.HintOf(err))
	}
	r, err := f.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRules(t *testing.T) {
	r := compile(t, sampleRules)
	if !r.NeedsProcess() || r.Len() != 7 {
		t.Errorf("%d rules, process %v", r.Len(), r.NeedsProcess())
	}
	rsync := &Process{Exe: "/usr/bin/rsync", UID: 1000}
	for _, c := range []struct {
		conn Connection
		mode Mode
		rule string
	}{
		{Connection{Dest: "example.net:443"}, ModeUnset, ""},
		{Connection{Dest: "meet.example.org:443"}, ModeLatency, "voice"},
		{Connection{Dest: "a.b.MEET.Example.org.:3480"}, ModeLatency, "voice"},
		{Connection{Dest: "meet.example.org:80"}, ModeUnset, ""},
		{Connection{Dest: "notmeet.example.org:443"}, ModeUnset, ""},
		{Connection{Dest: "example.org:443"}, ModeUnset, ""},
		{Connection{Dest: "198.51.100.1:443", Name: "meet.example.org."}, ModeLatency, "voice"},
		{Connection{Dest: "telemetry.example.org:443"}, ModeBlock, "no telemetry"},
		{Connection{Dest: "ads.example.com:443"}, ModeBlock, "no telemetry"},
		{Connection{Dest: "192.168.1.1:80"}, ModeDirect, "home"},
		{Connection{Dest: "[::ffff:192.168.1.1]:80"}, ModeDirect, "home"},
		{Connection{Dest: "203.0.113.7:80"}, ModeDirect, "home"},
		{Connection{Dest: "203.0.113.8:80"}, ModeUnset, ""},
		{Connection{Dest: "[fd12::1]:80"}, ModeDirect, "home"},
		{Connection{Dest: "a:22", Process: rsync}, ModeBond, "backups"},
		{Connection{Dest: "a:22", Process: &Process{Exe: "/usr/bin/rsync", UID: 5}}, ModeUnset, ""},
		{Connection{Dest: "a:22", Process: &Process{Exe: "/opt/rsync"}}, ModeUnset, ""},
		{Connection{Dest: "a:22", Process: &Process{Exe: "/opt/restic-0.17"}}, ModeBond, "backups"},
		{Connection{Dest: "a:22", Process: &Process{UID: 1000}}, ModeUnset, ""},
		{Connection{Dest: "a:22", Process: &Process{Label: "work"}}, ModeRedundant, "work"},
		{Connection{Dest: "a:22", Process: &Process{Label: "play"}}, ModeUnset, ""},
		{Connection{Dest: "a:22", Process: &Process{Cgroup: "/system.slice/cron.service/x"}}, ModeDirect, "services"},
		{Connection{Dest: "a:22", Process: &Process{Cgroup: "/user.slice/cron.service"}}, ModeUnset, ""},
		{Connection{Dest: "a:25"}, ModeBlock, "rule 7"},
		{Connection{Dest: "nonsense"}, ModeUnset, ""},
		{Connection{}, ModeUnset, ""},
	} {
		if v := r.Decide(c.conn); v.Mode != c.mode || v.Rule != c.rule || v.Reason == "" {
			t.Errorf("%+v: %+v, want %v by %q", c.conn, v, c.mode, c.rule)
		}
	}
	if v := compile(t, "default = 'deny'\n[[rule]]\nport=['443']").Decide(Connection{Dest: "a:80"}); v.Mode != ModeBlock {
		t.Errorf("the default is to deny, and it is %+v", v)
	}
	if v := new(Rules).Decide(Connection{Dest: "a:80"}); v.Mode != ModeUnset {
		t.Errorf("without rules it is %+v", v)
	}
}

// TestWritings: addresses and names that can be written in several ways match in
// each.
func TestWritings(t *testing.T) {
	r := compile(t, `
[[rule]]
name = "mapped"
address = ["::ffff:192.0.2.0/120", "::ffff:198.51.100.7"]
[[rule]]
name = "mapped, all"
port = [7]
address = ["::ffff:0:0/96"]
[[rule]]
name = "wide"
address = ["64:ff9b::/90"]
[[rule]]
name = "books"
domain = ["*.Bücher.example", "xn--strae-oqa.example"]
`)
	for dest, want := range map[string]string{
		"192.0.2.9:80":                "mapped",
		"[::ffff:192.0.2.9]:80":       "mapped",
		"192.0.3.9:80":                "",
		"198.51.100.7:80":             "mapped",
		"198.51.100.8:80":             "",
		"203.0.113.1:7":               "mapped, all",
		"[2001:db8::1]:7":             "",
		"[64:ff9b::1]:80":             "wide",
		"xn--bcher-kva.example:80":    "books",
		"a.XN--BCHER-KVA.example.:80": "books",
		"bücher.example:80":           "books",
		"BÜCHER.example:80":           "books",
		"bucher.example:80":           "",
		"straße.example:80":           "books",
		"\xff.example:80":             "",
	} {
		if v := r.Decide(Connection{Dest: dest}); v.Rule != want {
			t.Errorf("%s: %q, want %q", dest, v.Rule, want)
		}
	}
	if v := r.Decide(Connection{Dest: "203.0.113.1:443", Name: "www.bücher.example"}); v.Rule != "books" {
		t.Errorf("by name: %+v", v)
	}
}

func TestRulesRefused(t *testing.T) {
	for _, c := range []struct{ text, want, hint string }{
		{"\n[[rule]]\nmod = 'block'", `policy.toml:3: unknown setting "rule.mod"`, `"mode"`},
		{"[[rules]]\nmode = 'block'", `policy.toml:1: unknown setting`, `"rule"`},
		{"[[rule]]\nmode = 'blok'", "policy.toml:2", ""},
		{"default = 'maybe'", "policy.toml:1", ""},
		{"[[rule]]\nname='x'\nport = ['0']", "policy.toml:3", ""},
		{"[[rule]]\nport = ['90-80']", "policy.toml:2", ""},
		{"[[rule]]\naddress = ['10.0.0.0/33']", "policy.toml:2", ""},
		{"[[rule]]\naddress = ['fe80::1%eth0']", "policy.toml:2", ""},
		{"[[rule]]\ndomain = ['a*.example.org']", "policy.toml:2", ""},
		{"[[rule]]\ndomain = ['']", "policy.toml:2", ""},
		{"[[rule]]\ndomain = ['a..b']", "policy.toml:2", ""},
		{"[[rule]]\ndomain = ['ü b.example']", "policy.toml:2", ""},
		{"[[rule]]\ndomain = ['-ü-.example']", "policy.toml:2", ""},
		{"[[rule]]\napp = ['[']", "policy.toml:2", ""},
		{"[[rule]]\nuid = [-1]", "policy.toml", ""},
		{"[[rule]]\npriority = 'urgent'", "policy.toml:2", ""},
		{"[[rule]]\nweight = 101", "rule 1: weight is 101", ""},
		{"[[rule]]\nname='w'\nweight = -1", "w: weight is -1", ""},
		{"[[rule]]\ndevice = ['']", "empty device name", ""},
		{"[[rule]]\ndevice = ['phone']\nmode = 'direct'", "does not use the bond", ""},
		{"[[rule]]\nname='x'\n[[rule]]\nname='x'", "the same name", ""},
	} {
		var f File
		err := config.Parse("policy.toml", []byte(c.text), &f)
		if err == nil {
			_, err = f.Compile()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%q: %v (%s), want %q and %q", c.text, err, fault.HintOf(err), c.want, c.hint)
		}
	}
}

// TestPatterns: what is looked at first changes nothing.
func TestPatterns(t *testing.T) {
	for _, text := range []string{"a", "a*", "*a", "a*b", "a?b", "[ab]c", `a\*b`, `a\b`, "/x/*/a", "*", "[a]]",
		"a[^b]c*d"} {
		var p Pattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"", "a", "ab", "aab", "axb", "a*b", "bc", "ac", "axcd", "abcd", "/x/y/a", "/x/a", "a]"} {
			want, _ := path.Match(text, s)
			if got := p.matchesPath(s, s); got != want {
				t.Errorf("%q matches %q: %v, want %v", text, s, got, want)
			}
		}
	}
}

// agrees checks that the first rule that matches decides.
func agrees(t *testing.T, r *Rules, f Connection) {
	t.Helper()
	want, q := -1, f.prepareQuery()
	for i := len(r.rules) - 1; i >= 0; i-- {
		if r.rules[i].matchesQuery(&q) {
			want = i
		}
	}
	if v := r.Decide(f); v.Index != want {
		t.Errorf("%+v is decided by rule %d, %d matches first", f, v.Index, want)
	}
}

// TestFirstRuleDecides asks random rules about random flows.
func TestFirstRuleDecides(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	some := func(key string, of ...string) string {
		if r.IntN(3) > 0 {
			return ""
		}
		var list []string
		for range 1 + r.IntN(3) {
			list = append(list, "'"+pick(of...)+"'")
		}
		return key + " = [" + strings.Join(list, ",") + "]\n"
	}
	matched := 0
	for range 500 {
		text := ""
		for range 1 + r.IntN(6) {
			text += "[[rule]]\n" + some("app", "curl", "/usr/bin/curl", "cur*", "/usr/*/wget", "wg?t", "[w]get", "*") +
				some("domain", "example.org", "www.example.org", "org", "example.com") +
				some("port", "80", "443", "1-100", "400-65535") +
				some("address", "192.0.2.0/24", "192.0.2.7", "0.0.0.0/0", "2001:db8::/32", "::/0", "10.0.0.0/8") +
				some("label", "a", "b") + some("cgroup", "/a", "/a/*")
		}
		rules := compile(t, text)
		for range 50 {
			f := Connection{Dest: pick("192.0.2.7", "192.0.3.1", "[2001:db8::1]", "[::1]", "www.example.org", "org",
				"x.example.com", "[::ffff:10.1.2.3]") + ":" + pick("80", "443", "22"),
				Name: pick("", "www.example.org", "Example.com.")}
			if r.IntN(4) > 0 {
				f.Process = &Process{Exe: pick("", "/usr/bin/curl", "/usr/bin/wget", "/opt/curl"),
					Cgroup: pick("", "/a", "/a/b/c"), Label: pick("", "a"), UID: NoUID}
			}
			if agrees(t, rules, f); rules.Decide(f).Index >= 0 {
				matched++
			}
		}
	}
	if matched < 5000 {
		t.Errorf("only %d flows matched a rule", matched)
	}
}

// FuzzRules: whatever a file says, it is refused or can be asked.
func FuzzRules(f *testing.F) {
	f.Add(sampleRules, "meet.example.org:443")
	f.Add("default='deny'", "[::1]:80")
	f.Add("[[rule]]\napp=['*[a-z]?']\ncgroup=['/a/*']\nlabel=['x']\nuid=[0]", "1.2.3.4:5")
	f.Fuzz(func(t *testing.T, text, dest string) {
		var file File
		if config.Parse("f", []byte(text), &file) != nil {
			return
		}
		r, err := file.Compile()
		if err != nil {
			return
		}
		process := &Process{Exe: dest, Cgroup: "/" + dest, Label: dest}
		for _, conn := range []Connection{{Dest: dest}, {Dest: dest, Name: dest, Process: process}} {
			v := r.Decide(conn)
			agrees(t, r, conn)
			if v.Reason == "" || v.Mode >= modeCount {
				t.Errorf("%+v: %+v", conn, v)
			}
		}
	})
}

// BenchmarkRules: 1,000 rules of all kinds; the last one matches.
func BenchmarkRules(b *testing.B) {
	for _, kind := range []string{"mixed", "patterns"} {
		var text strings.Builder
		for i := range 1000 {
			line := fmt.Sprintf("app = ['/opt/*/bin/app%d']", i)
			if kind == "mixed" {
				switch i % 5 {
				case 0:
					line = fmt.Sprintf("domain = ['www%d.example.org', 'x%d.example.com']", i, i)
				case 1:
					line = fmt.Sprintf("address = ['10.%d.%d.0/24']", i/250, i%250)
				case 2:
					line = fmt.Sprintf("app = ['/usr/bin/app%d']", i)
				case 3:
					line = fmt.Sprintf("port = ['%d']", 1000+i)
				}
			}
			fmt.Fprintf(&text, "[[rule]]\n%s\nmode = 'block'\n", line)
		}
		r := compile(b, text.String()+"[[rule]]\nname = 'last'\nmode = 'direct'")
		f := Connection{Dest: "203.0.113.9:443", Name: "www.example.net",
			Process: &Process{Exe: "/opt/suite/bin/program", UID: 1000}}
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := r.Decide(f); v.Rule != "last" {
					b.Fatal(v)
				}
			}
		})
	}
}

// TestConditions: the conditions of a rule are returned as they were written.
func TestConditions(t *testing.T) {
	r := compile(t, `
[[rule]]
app = ["/usr/bin/a*", "b"]
cgroup = ["/x"]
label = ["l"]
uid = [7]
domain = ["*.Example.org"]
address = ["192.0.2.7", "2001:db8::1/32"]
port = [80, "1-2"]
[[rule]]
`).List()
	const want = "map[address:[192.0.2.7 2001:db8::/32] app:[/usr/bin/a* b] cgroup:[/x] domain:[example.org] label:[l] " +
		"port:[80 1-2] uid:[7]]"
	if got := fmt.Sprint(r[0].Conditions()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := r[1].Conditions(); len(got) != 0 || r[1].Name != "rule 2" {
		t.Errorf("%v, %q", got, r[1].Name)
	}
}

// TestVerdictNamesRule: a verdict names the rule and its index, also without one. An unknown user
// matches none.
func TestVerdictNamesRule(t *testing.T) {
	r := compile(t, "default='deny'\n[[rule]]\nuid=[4294967295, 0]\n[[rule]]\nport=[80]\nmode='block'\n")
	for dest, want := range map[string]int{"x:80": 1, "x:81": -1} {
		if v := r.Decide(Connection{Dest: dest, Process: &Process{Exe: "/x", UID: NoUID}}); v.Index != want ||
			v.Reason == "" {
			t.Errorf("%s: %+v, want %d", dest, v, want)
		}
	}
	if v := new(Rules).Decide(Connection{Dest: "x:80"}); v.Index != -1 || v.Mode != ModeUnset || v.Reason == "" {
		t.Errorf("no rules: %+v", v)
	}
}
