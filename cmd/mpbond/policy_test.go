// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
)

// TestPolicyCheck checks files without a primary: exit code, text and JSON.
func TestPolicyCheck(t *testing.T) {
	dir := newHome(t)
	good, bad := filepath.Join(dir, "policy.toml"), filepath.Join(dir, "bad.toml")
	conf, dual, typo := filepath.Join(dir, "p.toml"), filepath.Join(dir, "d.toml"), filepath.Join(dir, "typo.toml")
	for path, text := range map[string]string{good: "[[rule]]\nport=[80]\n", bad: "[[rule]]\nprot=[80]\n",
		conf: "policy='" + bad + "'\n", dual: "[primary]\npolicy='" + bad + "'\n", typo: "polcy='" + bad + "'\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		out  string // in what is printed, on either stream
	}{
		{[]string{good}, 0, "valid, 1 rules"},
		{nil, 0, good},
		{[]string{"--config", conf}, 2, `did you mean "port"?`}, // it names bad
		{[]string{"--config", dual, "--json"}, 2, `{"file":"` + bad},
		{[]string{"--config", filepath.Join(dir, "sub", "none.toml"), good}, 0, "valid, 1 rules"},
		{[]string{"--config", typo}, 2, `did you mean "policy"?`},
		{[]string{bad}, 2, `did you mean "port"?`},
		{[]string{bad, "--json"}, 2,
			`"valid":false,"rules":0,"refused":{"text":"` + bad +
				`:2: unknown setting \"rule.prot\"","line":2,"column":1,"nearest":"port"`},
		{[]string{good, "--json"}, 0, `"valid":true,"rules":1`},
		{[]string{filepath.Join(dir, "none.toml")}, 1, "check the path"},
		{[]string{good, bad}, 2, "mpbond policy check --help"},
	} {
		code, out, errs := runProgram(t, append([]string{"policy", "check"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.out) {
			t.Errorf("%q: exit code %d, %s%s, want %d and %s", c.args, code, out, errs, c.code, c.out)
		}
	}
	if code, _, errs := runProgram(t, "policy", "show"); code != 3 || !strings.Contains(errs, "not running") {
		t.Errorf("show without a primary: %d, %s", code, errs)
	}
	if code, _, errs := runProgram(t, "policy", "why", "example.org"); code != 2 ||
		!strings.Contains(errs, "example.org:443") {
		t.Errorf("why without a port: %d, %s", code, errs)
	}
}

// TestPolicyCheckAtHelper checks that a device is a helper by its trusted devices, or by the role
// that runs.
func TestPolicyCheckAtHelper(t *testing.T) {
	dir := newHome(t)
	trust, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.Generate()
	if err == nil {
		err = trust.Add(identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: key.Public(),
			Servers: []string{"192.0.2.1:7600"}})
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "policy.toml"),
			[]byte("[[rule]]\nport=[80]\n[device.tin]\nbattery_floor=20\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...string) {
		t.Helper()
		var got policyCheckResult
		code, out, errs := runProgram(t, "policy", "check", "--json")
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != cli.ExitOK || !got.Valid ||
			!slices.Equal(got.Unkept, want) {
			t.Errorf("code %d, %v: %s%s, want %q", code, err, out, errs, want)
		}
	}
	host := resolveDeviceName("")
	check("the rules (1): they are for a primary", "battery_floor of tin: here they count for "+host+" alone")
	startRole(t, "helper", "--name", "tin")
	check("the rules (1): they are for a primary")
	if code, out, _ := runProgram(t, "policy", "check"); code != cli.ExitOK ||
		!strings.HasSuffix(out, "valid, 1 rules\nthe helper tin ignores the rules (1): they are for a primary\n") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestPolicyCommand shows, changes and queries the policy of a running primary, which is beside the
// file of --config, and checks the events.
func TestPolicyCommand(t *testing.T) {
	newPairedHome(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.toml")
	write := func(path, text string) {
		t.Helper()
		err := os.WriteFile(path+".new", []byte(text), 0o640)
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "p.toml"), "proxy = '127.0.0.1:0'\ntransparent = 0\npipe = ''\n")
	write(file, "[[rule]]\nname='no mail'\nport=[25]\nmode='block'\n")
	_, log := startRole(t, "primary", "--config", filepath.Join(dir, "p.toml"))
	c := client.New(api.SocketPath("primary"))
	defer c.Close()
	p, err := c.Policy(t.Context())
	if err != nil || p.File != file || p.Refused != nil || p.ReadOnly || p.Loaded == nil || len(p.Rules) != 1 ||
		p.Rules[0].Line != 1 || p.Rules[0].Mode != "block" || p.Default != "allow" {
		t.Fatalf("%+v, %v\n%s", p, err, log)
	}
	if code, out, errs := runProgram(t, "policy", "show"); code != 0 ||
		!strings.Contains(out, "no mail  port=25  block") || !strings.Contains(out, "default: allow") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	// the running primary's policy, not that in MPBOND_HOME
	if code, out, errs := runProgram(t, "policy", "check"); code != 0 ||
		!strings.HasPrefix(out, file+": valid, 1 rules") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if code, out, errs := runProgram(t, "policy", "why", "example.org:25"); code != 0 ||
		!strings.HasPrefix(out, "block\nno mail says block; ") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	other := filepath.Join(dir, "other.toml")
	write(other, "[[rule]]\nname='mine'\nuid=[7]\napp=['curl']\nmode='direct'\n")
	var a api.PolicyAnswer
	if code, out, errs := runProgram(t, "policy", "why", "[::1]:25", "--file", other, "--uid", "7", "--app",
		"/bin/curl", "--json"); code != 0 || json.Unmarshal([]byte(out), &a) != nil || a.Rule != "mine" ||
		a.Verdict.Mode != "direct" {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	write(other, "\n[[rul]]\n")
	if code, _, errs := runProgram(t, "policy", "why", "x:25", "--file", other); code != 2 ||
		!strings.Contains(errs, ":2: unknown") {
		t.Errorf("%d, %s", code, errs)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	news := make(chan api.Event)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n, err := range c.Events(ctx, 0) {
			if err != nil {
				return
			}
			if n.Change != nil && strings.HasPrefix(n.Change.Kind, "policy_") {
				select {
				case news <- *n.Change:
				case <-ctx.Done():
				}
			}
		}
	}()
	expectEvent := func(kind, text string) {
		t.Helper()
		select {
		case e := <-news:
			if e.Kind != kind || !strings.Contains(e.Text, text) {
				t.Errorf("got %+v, want %s, %s", e, kind, text)
			}
		case <-ctx.Done():
			t.Fatalf("%s is not logged\n%s", kind, log)
		}
	}
	expectEvent("policy_changed", file) // at the start
	p, err = c.SetPolicy(t.Context(), api.PolicyText{Text: "default='deny'\n", Version: &p.Version})
	if err != nil || p.Default != "deny" || len(p.Rules) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	expectEvent("policy_changed", file)
	if data, err := os.ReadFile(file); err != nil || string(data) != "default='deny'\n" {
		t.Errorf("%q, %v", data, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := c.SetPolicy(t.Context(), api.PolicyText{Text: "defualt='deny'\n"}); !fault.Is(err, fault.Config) ||
		fault.HintOf(err) != `did you mean "default"?` {
		t.Errorf("%v", err)
	}
	write(file, "default='nein'\n") // by hand: the primary notices
	expectEvent("policy_refused", "nein")
	if p, err = c.Policy(t.Context()); err != nil || p.Default != "deny" || p.Refused == nil || p.Refused.Line != 1 ||
		p.Text != "default='nein'\n" {
		t.Errorf("%+v, %v", p, err)
	}
	if code, out, errs := runProgram(t, "policy", "show"); code != 0 || !strings.Contains(out, "not in force") ||
		!strings.Contains(out, "nein") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if _, err := c.SetPolicy(t.Context(), api.PolicyText{Text: "", Version: &p.Version}); err != nil {
		t.Error(err)
	}
	expectEvent("policy_changed", file)
	if p, err = c.Policy(t.Context()); err != nil || p.Default != "allow" || p.Refused != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if p, err = c.Policy(t.Context()); err != nil || !p.ReadOnly {
		t.Errorf("where nothing can be written: %+v, %v", p, err)
	}
	cancel()
	<-done
}

// TestPolicyAtStart checks that a primary does not start with an invalid policy, and says where it
// is invalid.
func TestPolicyAtStart(t *testing.T) {
	dir := newPairedHome(t)
	file := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(file, []byte("\n[[rule]]\nmode='blok'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expectFailure(t, 2, file+":3:", "", "primary", "--proxy", "127.0.0.1:0", "--transparent", "0", "--pipe", "")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		t.Error("the file is gone")
	}
}
