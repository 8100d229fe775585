package primary

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/fault"
	"mpbond/intercept"
	"mpbond/policy"
	"mpbond/wire"
)

// TestPlan: a file is in force once it is read; a bad one changes nothing and is
// told of; what it leaves open the primary's own settings decide.
func TestPlan(t *testing.T) {
	modes, err := policy.ParseModes([]string{"port:22"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &Primary{log: slog.New(slog.DiscardHandler)}
	p.plan.start(modes)
	file := filepath.Join(t.TempDir(), "policy.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	judged := func(dest string) string {
		mode, _, err := p.judge(intercept.App{}, dest)
		var r wire.Reset
		switch {
		case errors.Is(err, intercept.ErrAround):
			return "direct"
		case errors.As(err, &r) && r.Code == wire.CodeForbidden:
			return "block"
		case err != nil:
			return err.Error()
		}
		return mode.String()
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for i, dest := range []string{"a:22", "a:80", "a:81", "a:82"} {
			if got := judged(dest); got != want[i] {
				t.Errorf("%s: %s is %s, want %s", when, dest, got, want[i])
			}
		}
	}
	if err := p.UsePolicy(file, false); err != nil || p.Policy() != nil {
		t.Errorf("without a file: %v, %+v", err, p.Policy())
	}
	expect("without a file", "latency", "bond", "bond", "bond")
	if err := p.UsePolicy(file, true); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file that must exist: %v", err)
	}
	const good = "default='deny'\n[[rule]]\nport=[22]\n[[rule]]\nport=[80]\nmode='redundant'\n[[rule]]\nport=[81]\nmode='direct'\n"
	write(good)
	if err := p.UsePolicy(file, false); err != nil {
		t.Fatal(err)
	}
	expect("with rules", "latency", "redundant", "direct", "block")
	if s := p.Policy(); s == nil || s.Rules != 3 || s.Error != "" || s.Blocked != 1 || s.Direct != 1 || s.Loaded.IsZero() {
		t.Errorf("%+v", s)
	}
	write("default='allow'\n[[rule]]\nmod='block'\n")
	p.ReloadPolicy(true)
	expect("with a bad file", "latency", "redundant", "direct", "block")
	if s := p.Policy(); s == nil || !strings.Contains(s.Error, ":3: unknown setting") || !strings.Contains(s.Error, `did you mean "mode"?`) || s.Rules != 3 {
		t.Errorf("%+v", s)
	}
	write("default='allow'\n")
	p.ReloadPolicy(true)
	expect("mended", "latency", "bond", "bond", "bond")
	if s := p.Policy(); s == nil || s.Error != "" {
		t.Errorf("%+v", s)
	}
	write(good)
	p.ReloadPolicy(true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.ReloadPolicy(true)
	expect("removed", "latency", "bond", "bond", "bond")
}
