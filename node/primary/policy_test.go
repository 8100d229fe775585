// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/wire"
	"mpbond/node/intercept"
)

// TestPolicy: a file is in force once it is read. A bad file changes nothing and is reported. The
// primary's own settings decide what the rules leave open.
func TestPolicy(t *testing.T) {
	usual, err := policy.CompileSettings([]string{"port:22"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	rec := (*trace.Recorder)(nil).NotifyChanges("p", func(e trace.Event) { events = append(events, string(e.Kind)) })
	p := newPolicy(usual, nil, slog.New(slog.DiscardHandler), rec)
	file := filepath.Join(t.TempDir(), "policy.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	decided := func(dest string) string {
		how, err := p.decideConn(intercept.App{}, dest)
		var r wire.Reset
		switch {
		case errors.Is(err, intercept.ErrAround):
			return "direct"
		case errors.As(err, &r) && r.Code == wire.CodeForbidden:
			return "block"
		case err != nil:
			return err.Error()
		}
		return how.mode.String()
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for i, dest := range []string{"a:22", "a:80", "a:81", "a:82"} {
			if got := decided(dest); got != want[i] {
				t.Errorf("%s: %s is %s, want %s", when, dest, got, want[i])
			}
		}
	}
	if err := p.File().Use(file, false); err != nil || p.Status() != nil {
		t.Errorf("without a file: %v, %+v", err, p.Status())
	}
	expect("without a file", "latency", "bond", "bond", "bond")
	if err := p.File().Use(file, true); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file that must exist: %v", err)
	}
	const good = "default='deny'\n[[rule]]\nport=[22]\n[[rule]]\nport=[80]\nmode='redundant'\n[[rule]]\nport=[81]\n" +
		"mode='direct'\n"
	write(good)
	if err := p.File().Use(file, false); err != nil {
		t.Fatal(err)
	}
	expect("with rules", "latency", "redundant", "direct", "block")
	if s := p.Status(); s == nil || s.Rules != 3 || s.Error != "" || s.Blocked != 1 || s.Direct != 1 ||
		s.Loaded.IsZero() {
		t.Errorf("%+v", s)
	}
	write("default='allow'\n[[rule]]\nmod='block'\n")
	p.File().Reload(true)
	expect("with a bad file", "latency", "redundant", "direct", "block")
	if s := p.Status(); s == nil || !strings.Contains(s.Error, ":3: unknown setting") ||
		!strings.Contains(s.Error, `did you mean "mode"?`) ||
		s.Rules != 3 {
		t.Errorf("%+v", s)
	}
	write("default='allow'\n")
	p.File().Reload(true)
	expect("mended", "latency", "bond", "bond", "bond")
	if s := p.Status(); s == nil || s.Error != "" {
		t.Errorf("%+v", s)
	}
	write(good)
	p.File().Reload(true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.File().Reload(true)
	expect("removed", "latency", "bond", "bond", "bond")
	p.File().Reload(true)
	write("default='allow'\n")
	p.File().Reload(false)
	p.File().Reload(false) // unchanged
	if want := []string{"policy_changed", "policy_refused", "policy_changed", "policy_changed", "policy_changed",
		"policy_changed"}; !slices.Equal(
		events,
		want,
	) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// TestSetPolicy: a usable text is written and in force at once; an unusable one, or one from an
// older version, changes nothing.
func TestSetPolicy(t *testing.T) {
	p := newPolicy(new(policy.Rules), nil, slog.New(slog.DiscardHandler), nil)
	file := filepath.Join(t.TempDir(), "policy.toml")
	if err := p.File().Use(file, false); err != nil {
		t.Fatal(err)
	}
	const first, second = "[[rule]]\nport=[80]\nmode='block'\n", "default='deny'\n"
	none, of := "", func(text string) *string { v := textVersion([]byte(text)); return &v }
	expect := func(when, text string, rules int) {
		t.Helper()
		if data, _ := os.ReadFile(file); string(data) != text || p.currentRules().Len() != rules {
			t.Errorf("%s: %q and %d rules, want %q and %d", when, data, p.currentRules().Len(), text, rules)
		}
	}
	for _, c := range []struct {
		when, text string
		version    *string
		kind       fault.Kind
		after      string
		rules      int
	}{
		{"made from a file that is not there", first, of(second), fault.Exists, "", 0},
		{"made from none", first, &none, "", first, 1},
		{"made from none, again", second, &none, fault.Exists, first, 1},
		{"unusable", "[[rule]]\nmode='blok'\n", nil, fault.Config, first, 1},
		{"contradictory", "[[rule]]\n[[rule]]\nweight=3\nmode='direct'\n", nil, fault.Config, first, 1},
		{"made from what is there", second, of(first), "", second, 0},
		{"made from whatever", first, nil, "", first, 1},
	} {
		err := p.file.replacePolicyText(api.PolicyText{Text: c.text, Version: c.version})
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %q", c.when, err, c.kind)
		}
		expect(c.when, c.after, c.rules)
	}
	p.File().Reload(false)
	expect("looked at again", first, 1)
	if err := os.WriteFile(file, []byte("default='allow'"), 0o600); err != nil { // by another program, a moment ago
		t.Fatal(err)
	}
	if err := p.file.replacePolicyText(api.PolicyText{Text: second, Version: of(first)}); !fault.Is(err, fault.Exists) {
		t.Errorf("somebody else's change is overwritten: %v", err)
	}
	_, err := ParsePolicy("p", []byte("[[rule]]\n[[rule]]\n weight=3\nmode='direct'\n"))
	if e := PolicyErrorOf(err); e.Line != 4 || e.Column != 1 || e.Text == "" {
		t.Errorf("%+v", e)
	}
	_, err = ParsePolicy("p", []byte("[[rule]]\nprot=[1]\n"))
	if e := PolicyErrorOf(err); e.Line != 2 || e.Column != 1 || e.Nearest != "port" ||
		!strings.Contains(e.Hint, "port") {
		t.Errorf("%+v", e)
	}
}

// TestExplain: a rule means now what its class allows.
func TestExplain(t *testing.T) {
	now := subflowSnapshot{all: []policy.ClassSubflow{
		{
			ID:     1,
			Direct: true,
			Names:  []string{"laptop", "wlan0"},
			Delay:  2,
		}, {ID: 2, Names: []string{"phone"}, Pipe: "wlan0", Delay: 1},
	}}
	class := func(t policy.TrafficClass) *policy.TrafficClass { t.Weight = 1; return &t }
	for _, c := range []struct {
		mode  policy.Mode
		class *policy.TrafficClass
		paths []uint32
		says  string
	}{
		{policy.ModeBlock, nil, nil, "not carried"},
		{policy.ModeDirect, nil, nil, "bypasses"},
		{policy.ModeBond, nil, []uint32{1, 2}, "1 by laptop, 2 by phone"},
		{policy.ModeRedundant, nil, []uint32{1, 2}, "all carry it"},
		{policy.ModeBond, class(policy.TrafficClass{Devices: []string{"phone"}}), []uint32{2}, "2 by phone"},
		{policy.ModeBond, class(policy.TrafficClass{Devices: []string{"wlan0"}}), []uint32{1}, "1 by laptop"},
		{policy.ModeBond, class(policy.TrafficClass{Devices: []string{"tablet"}}), nil, "it waits"},
		{policy.ModeSingle, class(policy.TrafficClass{Single: true}), []uint32{2}, "now 2 by phone"},
	} {
		a := now.explainClass(c.mode, c.class)
		if !slices.Equal(a.Subflows, c.paths) || !strings.Contains(a.Reason, c.says) || a.Mode != c.mode.String() {
			t.Errorf("%v %+v: %+v, want %v, %q", c.mode, c.class, a, c.paths, c.says)
		}
	}
	single := class(policy.TrafficClass{Single: true})
	now.single = map[string]wire.SubflowID{single.Key(): 1}
	if a := now.explainClass(policy.ModeSingle, single); !slices.Equal(a.Subflows, []uint32{1}) {
		t.Errorf("a single one stays with what it uses: %+v", a)
	}
	if a := (subflowSnapshot{}).explainClass(policy.ModeBond, nil); !strings.Contains(a.Reason, "there is no subflow") {
		t.Errorf("%+v", a)
	}
}

// BenchmarkRules measures the cost of 1,000 rules for a new connection, without and with finding
// its program among the processes of this machine.
func BenchmarkRules(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	app := intercept.App{
		Network: "tcp",
		Addr:    c.LocalAddr().(*net.TCPAddr).AddrPort(),
		Peer:    c.RemoteAddr().(*net.TCPAddr).AddrPort(),
	}
	for _, kind := range []string{"domain = ['www%d.example.org']", "app = ['/usr/bin/app%d']"} {
		text := ""
		for i := range 1000 {
			text += "[[rule]]\n" + fmt.Sprintf(kind, i) + "\nmode = 'block'\n"
		}
		p := newPolicy(new(policy.Rules), nil, slog.New(slog.DiscardHandler), nil)
		rules, err := ParsePolicy("p", []byte(text))
		if err != nil {
			b.Fatal(err)
		}
		p.file.activateRules(rules, nil)
		b.Run(strings.Fields(kind)[0], func(b *testing.B) {
			for b.Loop() {
				if how, err := p.decideConn(app, "www.example.net:443"); err != nil || how.mode != wire.ModeBond {
					b.Fatal(how, err)
				}
			}
		})
	}
}
