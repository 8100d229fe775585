// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runProgram runs the program in this process.
func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return clitest.Run(t, mpbondProgram(), args...)
}

// newHome gives the test its own directory for keys and sockets.
func newHome(t *testing.T) string { t.Helper(); return clitest.Home(t) }

func TestExitCodes(t *testing.T) {
	dir := newHome(t)
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"version", cli.ExitOK, "\nwire protocol "},
		{"--version", cli.ExitOK, "mpbond dev"},
		{"--help", cli.ExitOK, "Rules, settings, keys\n"},
		{"help exit-codes", cli.ExitOK, "130  interrupted"},
		{"help lab", cli.ExitOK, "mpbond-lab --help"},
		{"help trust add", cli.ExitOK, "--role"},
		{"frobnicate", cli.ExitUsage, "unknown command"},
		{"trust frobnicate", cli.ExitUsage, "unknown command"},
		{"version x", cli.ExitUsage, "does not take"},
		{"version --jsn", cli.ExitUsage, "--help"},
		{"version --log-level loud", cli.ExitUsage, "debug, info"},
		{"version --log-format xml", cli.ExitUsage, "text or json"},
		{"trust add", cli.ExitUsage, "NAME is missing"},
		{"trust add x", cli.ExitUsage, "--key"},
		{"trust add x --role helper --key mpb1", cli.ExitUsage, "characters"},
		{"trust remove x", cli.ExitFailure, "no device"},
		{"pair", cli.ExitUsage, "CODE is missing"},
		{"pair K7QF", cli.ExitUsage, "4 characters"},
		{"pair K7QF-3M2A@127.0.0.1:1", cli.ExitNoConnection, "CODE@ADDRESS"},
		{"accept", cli.ExitNoConnection, "mpbond server"},
		{"devices", cli.ExitOK, "no device is paired"},
		{"rename x y", cli.ExitFailure, "no device"},
		{"revoke x", cli.ExitFailure, "mpbond devices"},
		{"status", cli.ExitNoConnection, "mpbond primary"},
		{"status --socket " + dir + "/none", cli.ExitNoConnection, "--socket"},
		{"get http://example.org/x", cli.ExitNoConnection, "not running"},
		{"get ftp://example.org/x", cli.ExitUsage, "web address"},
		{"get http://example.org/", cli.ExitNoConnection, "not running"},
		{"get http://example.org/x --sha256 beef", cli.ExitUsage, "64"},
	} {
		code, out, errs := runProgram(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.text) {
			t.Errorf("%s: code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.text, out, errs)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	newHome(t)
	code, out, errs := runProgram(t, "status", "--json")
	var got struct{ Error, Kind, Hint string }
	if err := json.Unmarshal([]byte(errs), &got); err != nil {
		t.Fatalf("%v in %q", err, errs)
	}
	if code != cli.ExitNoConnection || out != "" || got.Kind != string(fault.NotRunning) || got.Error == "" ||
		got.Hint == "" {
		t.Errorf("code %d, %q, %+v", code, out, got)
	}
}

func TestInterrupted(t *testing.T) {
	newHome(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := mpbondProgram().Run(ctx, []string{"status"}, &out, &out); code != cli.ExitInterrupted {
		t.Errorf("code %d: %s", code, &out)
	}
}

func TestKeygenAndTrust(t *testing.T) {
	dir := newHome(t)
	keygen := func() (k struct {
		Key, ID, File string
		Created       bool
	}) {
		t.Helper()
		code, out, errs := runProgram(t, "keygen", "--json")
		if err := json.Unmarshal([]byte(out), &k); code != cli.ExitOK || err != nil {
			t.Fatal(code, err, errs)
		}
		return k
	}
	own := keygen()
	if again := keygen(); !own.Created || again.Created || again.Key != own.Key ||
		own.File != filepath.Join(dir, "device.key") {
		t.Errorf("%+v, then %+v", own, again)
	}
	if _, out, _ := runProgram(t, "keygen"); !strings.Contains(out, own.Key) || !strings.Contains(out, own.ID) {
		t.Errorf("keygen printed %s", out)
	}
	t.Setenv("MPBOND_HOME", t.TempDir())
	other := keygen()
	t.Setenv("MPBOND_HOME", dir)

	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"list"}, cli.ExitOK, "no device"},
		{[]string{"list", "--json"}, cli.ExitOK, "[]\n"},
		{[]string{"add", "me", "--role", "helper", "--key", own.Key}, cli.ExitUsage, "this device itself"},
		{[]string{"add", "home", "--role", "server", "--key", other.Key}, cli.ExitUsage, "--addr"},
		{[]string{"add", "home", "--role", "king", "--key", other.Key}, cli.ExitUsage, "king"},
		{[]string{"add", "home", "--role", "server,helper", "--key", other.Key, "--addr", "h:1", "--addr", "i:2"},
			cli.ExitOK, other.ID},
		{[]string{"add", "home", "--role", "helper", "--key", own.Key[:59]}, cli.ExitUsage, "59"},
		{[]string{"add", "twin", "--role", "helper", "--key", other.Key}, cli.ExitFailure, `"home"`},
		{[]string{"list"}, cli.ExitOK, "server helper  " + other.ID + "  h:1 i:2"},
		{[]string{"list", "--json"}, cli.ExitOK, other.Key},
		{[]string{"remove", "home"}, cli.ExitOK, "no longer"},
		{[]string{"list"}, cli.ExitOK, "no device"},
	} {
		code, out, errs := runProgram(t, append([]string{"trust"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.text) {
			t.Errorf("%v: code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.text, out, errs)
		}
	}
	if err := os.Chmod(own.File, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runProgram(t, "keygen"); code != cli.ExitRefused || !strings.Contains(errs, "chmod 600") {
		t.Errorf("open key file: code %d, %s", code, errs)
	}
}

func TestLoadConfig(t *testing.T) {
	dir := newHome(t)
	s := struct{ Listen string }{"default"}
	if err := loadConfig("", "server", &s); err != nil || s.Listen != "default" {
		t.Errorf("no file: %v, %+v", err, s)
	}
	if err := loadConfig(filepath.Join(dir, "server.toml"), "server", &s); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file that was asked for is missing: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.toml"), []byte("listen = ':1'"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := loadConfig("", "server", &s); err != nil || s.Listen != ":1" {
		t.Errorf("%v, %+v", err, s)
	}
}

// TestCompletion checks that shells complete commands and flags.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := runProgram(t, "completion", shell); code != cli.ExitOK ||
			!strings.Contains(out, "mpbond") || !strings.Contains(out, "__complete") {
			t.Errorf("%s: code %d, %d bytes, %s", shell, code, len(out), errs)
		}
	}
	for _, c := range [][2]string{{"eve", "events"}, {"sta", "status"}} {
		if _, out, _ := runProgram(t, "__complete", c[0]); !strings.HasPrefix(out, c[1]+"\t") {
			t.Errorf("%s is completed to %q", c[0], out)
		}
	}
	if _, out, _ := runProgram(t, "__complete", "top", "--so"); !strings.HasPrefix(out, "--socket") {
		t.Errorf("--so is completed to %q", out)
	}
}

// TestOverview checks that `mpbond --help` fits on a screen and lists every command once.
func TestOverview(t *testing.T) {
	_, out, _ := runProgram(t, "--help")
	if n := strings.Count(out, "\n"); n > 40 {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(out) {
		if len(line) > 101 {
			t.Errorf("over 100 columns: %s", line)
		}
	}
	root, _ := mpbondProgram().Root(io.Discard)
	for _, c := range root.Commands() {
		if n := strings.Count(out, "\n  "+c.Name()+" "); c.IsAvailableCommand() && n != 1 {
			t.Errorf("%s is listed %d times", c.Name(), n)
		}
	}
}

// TestAPIVersion checks that apiVersion is the number in the paths of the API.
func TestAPIVersion(t *testing.T) {
	code, err := os.ReadFile("../../api/serve/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	if path := fmt.Sprintf(`"/v%d/status"`, apiVersion); !strings.Contains(string(code), path) {
		t.Errorf("the API has no path %s", path)
	}
}
