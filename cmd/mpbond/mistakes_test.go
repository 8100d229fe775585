// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/internal/cli"
)

// TestMistakes checks that typing errors and commands in the wrong order end with the right exit
// code, a sentence that names the error, and a hint.
func TestMistakes(t *testing.T) {
	closed := "127.0.0.1:1"
	for _, c := range []struct {
		line, file string // the command line, and primary.toml
		code       int
		says, hint string
	}{
		{"staus", "", cli.ExitUsage, `unknown command "staus"`, "mpbond --help"},
		{"interfaces", "", cli.ExitUsage, `unknown command "interfaces"`, "mpbond --help"},
		{"devices extra", "", cli.ExitUsage, "`mpbond devices` does not take \"extra\"", "mpbond devices --help"},
		{"helper 192.168.1.5", "", cli.ExitUsage, "`mpbond helper` does not take \"192.168.1.5\"",
			"mpbond helper --help"},
		{"play http://h/live.m3u8", "", cli.ExitUsage, "`mpbond play` does not take \"http://h/live.m3u8\"",
			"mpbond play --help"},
		{"usage --csv --days", "", cli.ExitUsage, "--csv and --days exclude each other", "mpbond usage --help"},
		{"server --listen 127.0.0.1:0 extra", "", cli.ExitUsage, "does not take \"extra\"", "mpbond server --help"},
		{"usage --month", "", cli.ExitUsage, "unknown flag: --month", "mpbond usage --help"},
		{"primary --interface", "", cli.ExitUsage, "flag needs an argument: --interface", "mpbond primary --help"},
		{"pair", "", cli.ExitUsage, "CODE is missing: write `mpbond pair CODE...", "mpbond pair --help"},
		{"revoke", "", cli.ExitUsage, "NAME is missing: write `mpbond revoke NAME", "mpbond revoke --help"},
		{"rename phone", "", cli.ExitUsage, "is missing: write `mpbond rename", "mpbond rename --help"},
		{"pause phone tablet", "", cli.ExitUsage, `"tablet" is one argument too many: write `, "mpbond pause --help"},
		{"get", "", cli.ExitUsage, "is missing: write `mpbond get", "mpbond get --help"},
		{"put", "", cli.ExitUsage, "is missing: write `mpbond put", "mpbond put --help"},
		{"pair 1234", "", cli.ExitUsage, "the code has 4 characters instead of 8", "as the other device shows it"},
		{"pair K7QF-3M2U@127.0.0.1", "", cli.ExitUsage, "a code cannot contain 'U'", "as the other device shows it"},
		{"pair K7QF-3M2A@", "", cli.ExitUsage, "there is no address after the @", "as the other device shows it"},
		{"pair K7QF-3M2A@127.0.0.1:70000", "", cli.ExitUsage, `"70000" is not a port from 1 to 65535`,
			"as the other device shows it"},
		{"pair K7QF-3M2A@http://127.0.0.1/", "", cli.ExitUsage, "is not an address", "as the other device shows it"},
		{"pair K7QF-3M2A@" + closed, "", cli.ExitNoConnection, closed + " refused the call", "mpbond accept"},
		{"pair K7QF-3M2A@127.0.0.1", "", cli.ExitNoConnection, "127.0.0.1:7600 and 127.0.0.1:7603 refused the call",
			"mpbond accept"},
		{"pair --as primary K7QF-3M2A@h", "", cli.ExitUsage, "--as must be server or helper", "mpbond pair --help"},
		{"accept", "", cli.ExitNoConnection, "mpbond is not running", "start `mpbond server` or `mpbond helper` first"},
		{"pause phone", "", cli.ExitFailure, `no device called "phone" is trusted`, "see `mpbond devices`"},
		{"resume phone", "", cli.ExitFailure, `no device called "phone" is trusted`, "see `mpbond devices`"},
		{"revoke phone", "", cli.ExitFailure, `no device called "phone" is trusted`, "see `mpbond devices`"},
		{"trust add home --role server --key abc --addr h:1", "", cli.ExitUsage, `keys begin with "mpb1"`,
			"copy the whole key"},
		{"trust add home", "", cli.ExitUsage, "--key and --role are required", "mpbond trust add --help"},
		{"primary", "", cli.ExitUsage, "no server is trusted", "mpbond pair CODE"},
		{"primary --scheduler fast", "", cli.ExitUsage, `unknown scheduler "fast"`, "set `scheduler`"},
		{"primary --reinject 0", "", cli.ExitUsage, "the reinjection threshold is 0", "like 0.2"},
		{"primary --config /nonexistent.toml", "", cli.ExitFailure, "/nonexistent.toml: no such file", "check the path"},
		{"primary", "proxi = \"127.0.0.1:1\"", cli.ExitUsage, `primary.toml:1: unknown setting "proxi"`,
			`did you mean "proxy"?`},
		{"primary", "interfaces = \"auto\"", cli.ExitUsage, "interfaces: the value is a text but must be a list of texts",
			"a setting is written like"},
		{"primary", "subflows = \"two\"", cli.ExitUsage, "subflows: the value is a text but must be a number",
			"a setting is written like"},
		{"primary", "give_up = \"0\"", cli.ExitUsage, "streams would give up after 0s", "set `give_up` to a time"},
		{"primary", "give_up = 60", cli.ExitUsage, "give_up: 60 has no unit (write it like \"60s\")",
			"a setting is written like"},
		{"primary", "\nresume = 1.5", cli.ExitUsage, "resume: ", "a setting is written like"},
		{"primary", "give_up = \"60\"", cli.ExitUsage, "60 has no unit", "a setting is written like"},
		{"primary", "give_up = \"soon\"", cli.ExitUsage, "\"soon\" is not a time", "a setting is written like"},
		{"server --rate 8", "", cli.ExitUsage, `rate "8": it has no unit`, "write a rate like"},
		{"lab run --get 2MB", "", cli.ExitUsage, "`mpbond lab` is `mpbond-lab` now", "write `mpbond-lab run --get 2MB`"},
		{"lab bench --quick", "", cli.ExitUsage, "`mpbond lab bench` is `mpbond-lab exp run bench` now",
			"write `mpbond-lab exp run bench --quick`"},
		{"exp list", "", cli.ExitUsage, "`mpbond exp` is `mpbond-lab exp` now", "write `mpbond-lab exp list`"},
		{"permit status", "", cli.ExitUsage, "`mpbond permit` is `mpbond-lab permit` now",
			"write `mpbond-lab permit status`"},
		{"cell scan walk.cf32", "", cli.ExitUsage, "`mpbond cell` is `cellwatch` now", "write `cellwatch scan walk.cf32`"},
		{"server --listen 7600", "", cli.ExitUsage, "listen on 7600", "write an address as HOST:PORT"},
		{"server --rate fast", "", cli.ExitUsage, `rate "fast"`, "write a rate like"},
		{"server --allow 10.0.0.1", "", cli.ExitUsage, "--allow 10.0.0.1 is not an address prefix", "write a prefix like"},
		{"helper --onload=lots", "", cli.ExitUsage, `invalid allowance "lots"`, "mpbond helper --help"},
		{"helper --onload 200MB", "", cli.ExitUsage, "write --onload=200MB", "mpbond helper --help"},
		{"helper --feedback often", "", cli.ExitUsage, `feedback "often" is not known`, "there are: flexible"},
		{"status", "", cli.ExitNoConnection, "no mpbond of this user is running here", "start one"},
		{"streams", "", cli.ExitNoConnection, "mpbond is not running", "start it"},
		{"get example.org/file", "", cli.ExitUsage, `"example.org/file" is not a web address`, "write the URL like"},
		{"get http://" + closed + "/x", "", cli.ExitNoConnection, "mpbond is not running", "start it with `mpbond primary`"},
		{"put nofile --to http://" + closed + "/", "", cli.ExitFailure, "nofile: no such file", "nothing was uploaded"},
		{"play --listen 0.0.0.0:7606", "", cli.ExitUsage, "--listen must be a loopback address", "mpbond play --help"},
	} {
		dir := newHome(t)
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, "primary.toml"), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := runProgram(t, strings.Fields(c.line)...)
		first, hint, _ := strings.Cut(errs, "hint: ")
		if code != c.code || !strings.Contains(first, c.says) || !strings.Contains(hint, c.hint) || out != "" {
			t.Errorf("mpbond %s: code %d, want %d; want %q and %q in\n%s%s", c.line, code, c.code, c.says, c.hint, out, errs)
		}
		for _, internal := range []string{"arg(s)", "struct field", "netip.", "[]string", "primary.Config"} {
			if strings.Contains(errs, internal) {
				t.Errorf("mpbond %s: %q is no word for people:\n%s", c.line, internal, errs)
			}
		}
	}
}
