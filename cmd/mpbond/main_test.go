package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"mpbond/base/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mpbond runs the program in this process.
func mpbond(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// home gives the test a place of its own for keys and sockets.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("MPBOND_HOME", dir)
	return dir
}

func TestExitCodes(t *testing.T) {
	dir := home(t)
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"version", exitOK, "mpbond dev"},
		{"--version", exitOK, "mpbond dev"},
		{"--help", exitOK, "Exit codes"},
		{"help trust add", exitOK, "--role"},
		{"frobnicate", exitUsage, "unknown command"},
		{"trust frobnicate", exitUsage, "unknown command"},
		{"version x", exitUsage, "does not take"},
		{"version --jsn", exitUsage, "--help"},
		{"version --log-level loud", exitUsage, "debug, info"},
		{"version --log-format xml", exitUsage, "text and json"},
		{"trust add", exitUsage, "NAME is missing"},
		{"trust add x", exitUsage, "--key"},
		{"trust add x --role helper --key mpb1", exitUsage, "characters"},
		{"trust remove x", exitFailure, "no device"},
		{"pair", exitUsage, "CODE is missing"},
		{"pair K7QF", exitUsage, "4 characters"},
		{"pair K7QF-3M2A@127.0.0.1:1", exitNoConn, "CODE@ADDRESS"},
		{"accept", exitNoConn, "mpbond server"},
		{"devices", exitOK, "no other device"},
		{"rename x y", exitFailure, "no device"},
		{"revoke x", exitFailure, "mpbond devices"},
		{"status", exitNoConn, "mpbond primary"},
		{"status --socket " + dir + "/none", exitNoConn, "--socket"},
		{"get http://example.org/x", exitNoConn, "not running"},
		{"get ftp://example.org/x", exitUsage, "web address"},
		{"get http://example.org/", exitNoConn, "not running"},
		{"get http://example.org/x --sha256 beef", exitUsage, "64"},
	} {
		code, out, errs := mpbond(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.text) {
			t.Errorf("%s: code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.text, out, errs)
		}
	}
}

func TestHelpIsComplete(t *testing.T) {
	root, _ := rootCommand(&bytes.Buffer{})
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Short == "" && !c.Hidden {
			t.Errorf("%q has no description", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(root)
	for kind, code := range exitCodes {
		if code <= exitFailure || code > exitIntegrity {
			t.Errorf("%q has exit code %d", kind, code)
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	home(t)
	code, out, errs := mpbond(t, "status", "--json")
	var got struct{ Error, Kind, Hint string }
	if err := json.Unmarshal([]byte(errs), &got); err != nil {
		t.Fatalf("%v in %q", err, errs)
	}
	if code != exitNoConn || out != "" || got.Kind != string(fault.NotRunning) || got.Error == "" || got.Hint == "" {
		t.Errorf("code %d, %q, %+v", code, out, got)
	}
}

func TestInterrupted(t *testing.T) {
	home(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := execute(ctx, []string{"status"}, &out, &out); code != exitInterrupted {
		t.Errorf("code %d: %s", code, &out)
	}
}

// quietExit is an error as that of `mpbond run`.
type quietExit struct{ silent bool }

func (quietExit) Error() string  { return "command failed" }
func (quietExit) ExitCode() int  { return 42 }
func (e quietExit) Silent() bool { return e.silent }

func TestOwnExitCode(t *testing.T) {
	for _, silent := range []bool{true, false} {
		var errs bytes.Buffer
		code := report(t.Context(), &errs, &cobra.Command{}, errors.Join(quietExit{silent}))
		if code != 42 || (errs.Len() == 0) != silent {
			t.Errorf("silent %v: code %d, %q", silent, code, &errs)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	_, out, _ := mpbond(t, "version", "--json")
	var b build
	if err := json.Unmarshal([]byte(out), &b); err != nil || b.Version != version || b.Go == "" || b.System == "" {
		t.Errorf("%s: %v", out, err)
	}
}

func TestKeygenAndTrust(t *testing.T) {
	dir := home(t)
	keygen := func() (k struct {
		Key, ID, File string
		Created       bool
	}) {
		t.Helper()
		code, out, errs := mpbond(t, "keygen", "--json")
		if err := json.Unmarshal([]byte(out), &k); code != exitOK || err != nil {
			t.Fatal(code, err, errs)
		}
		return k
	}
	own := keygen()
	if again := keygen(); !own.Created || again.Created || again.Key != own.Key || own.File != filepath.Join(dir, "device.key") {
		t.Errorf("%+v, then %+v", own, again)
	}
	if _, out, _ := mpbond(t, "keygen"); !strings.Contains(out, own.Key) || !strings.Contains(out, own.ID) {
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
		{[]string{"list"}, exitOK, "no device"},
		{[]string{"list", "--json"}, exitOK, "[]\n"},
		{[]string{"add", "me", "--role", "helper", "--key", own.Key}, exitUsage, "this device itself"},
		{[]string{"add", "home", "--role", "server", "--key", other.Key}, exitUsage, "--addr"},
		{[]string{"add", "home", "--role", "king", "--key", other.Key}, exitUsage, "king"},
		{[]string{"add", "home", "--role", "server,helper", "--key", other.Key, "--addr", "h:1", "--addr", "i:2"}, exitOK, other.ID},
		{[]string{"add", "home", "--role", "helper", "--key", own.Key[:59]}, exitUsage, "59"},
		{[]string{"add", "twin", "--role", "helper", "--key", other.Key}, exitFailure, `"home"`},
		{[]string{"list"}, exitOK, "server helper  " + other.ID + "  h:1 i:2"},
		{[]string{"list", "--json"}, exitOK, other.Key},
		{[]string{"remove", "home"}, exitOK, "no longer"},
		{[]string{"list"}, exitOK, "no device"},
	} {
		code, out, errs := mpbond(t, append([]string{"trust"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.text) {
			t.Errorf("%v: code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.text, out, errs)
		}
	}
	if err := os.Chmod(own.File, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := mpbond(t, "keygen"); code != exitRefused || !strings.Contains(errs, "chmod 600") {
		t.Errorf("open key file: code %d, %s", code, errs)
	}
}

func TestLoadConfig(t *testing.T) {
	dir := home(t)
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

func TestOneLine(t *testing.T) {
	if got := oneLine("a\x1b[2Jb\nc\u009bd ü\u202e\u2028"); got != "a?[2Jb?c?d ü??" {
		t.Errorf("%q", got)
	}
}

// TestCompletion: shells complete commands and flags.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := mpbond(t, "completion", shell); code != exitOK || !strings.Contains(out, "mpbond") || !strings.Contains(out, "__complete") {
			t.Errorf("%s: code %d, %d bytes, %s", shell, code, len(out), errs)
		}
	}
	for _, c := range [][2]string{{"eve", "events"}, {"sta", "status"}} {
		if _, out, _ := mpbond(t, "__complete", c[0]); !strings.HasPrefix(out, c[1]+"\t") {
			t.Errorf("%s is completed to %q", c[0], out)
		}
	}
	if _, out, _ := mpbond(t, "__complete", "top", "--so"); !strings.HasPrefix(out, "--socket") {
		t.Errorf("--so is completed to %q", out)
	}
}
