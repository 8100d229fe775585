package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakes: what people mistype, or do in the wrong order, ends with the right code
// and one sentence that names what failed; a hint says what to do.
func TestMistakes(t *testing.T) {
	closed := "127.0.0.1:1"
	for _, c := range []struct {
		line, file string // the command line, and primary.toml
		code       int
		says, hint string
	}{
		{"staus", "", exitUsage, `unknown command "staus"`, "mpbond --help"},
		{"interfaces", "", exitUsage, `unknown command "interfaces"`, "mpbond --help"},
		{"devices extra", "", exitUsage, "`mpbond devices` does not take \"extra\"", "mpbond devices --help"},
		{"helper 192.168.1.5", "", exitUsage, "`mpbond helper` does not take \"192.168.1.5\"", "mpbond helper --help"},
		{"play http://h/live.m3u8", "", exitUsage, "`mpbond play` does not take \"http://h/live.m3u8\"", "mpbond play --help"},
		{"server --listen 127.0.0.1:0 extra", "", exitUsage, "does not take \"extra\"", "mpbond server --help"},
		{"usage --month", "", exitUsage, "unknown flag: --month", "mpbond usage --help"},
		{"primary --interface", "", exitUsage, "flag needs an argument: --interface", "mpbond primary --help"},
		{"pair", "", exitUsage, "CODE is missing: write `mpbond pair CODE...", "mpbond pair --help"},
		{"revoke", "", exitUsage, "NAME is missing: write `mpbond revoke NAME", "mpbond revoke --help"},
		{"rename phone", "", exitUsage, "is missing: write `mpbond rename", "mpbond rename --help"},
		{"pause phone tablet", "", exitUsage, `"tablet" is one argument too many: write `, "mpbond pause --help"},
		{"get", "", exitUsage, "is missing: write `mpbond get", "mpbond get --help"},
		{"put", "", exitUsage, "is missing: write `mpbond put", "mpbond put --help"},
		{"pair 1234", "", exitUsage, "the code has 4 characters instead of 8", "as the other device shows it"},
		{"pair K7QF-3M2U@127.0.0.1", "", exitUsage, "no code has the character 'U'", "as the other device shows it"},
		{"pair K7QF-3M2A@", "", exitUsage, "no address is behind the @", "as the other device shows it"},
		{"pair K7QF-3M2A@127.0.0.1:70000", "", exitUsage, `"70000" is no port from 1 to 65535`, "as the other device shows it"},
		{"pair K7QF-3M2A@http://127.0.0.1/", "", exitUsage, "is no address", "as the other device shows it"},
		{"pair K7QF-3M2A@" + closed, "", exitNoConn, closed + " refused the call", "mpbond accept"},
		{"pair K7QF-3M2A@127.0.0.1", "", exitNoConn, "127.0.0.1:7600 and 127.0.0.1:7603 refused the call", "mpbond accept"},
		{"pair --as primary K7QF-3M2A@h", "", exitUsage, "--as is server or helper", "mpbond pair --help"},
		{"accept", "", exitNoConn, "mpbond is not running", "start `mpbond server` or `mpbond helper` first"},
		{"pause phone", "", exitFailure, `no device called "phone" is trusted`, "see `mpbond devices`"},
		{"resume phone", "", exitFailure, `no device called "phone" is trusted`, "see `mpbond devices`"},
		{"revoke phone", "", exitFailure, `no device called "phone" is trusted`, "see `mpbond devices`"},
		{"trust add home --role server --key abc --addr h:1", "", exitUsage, `keys begin with "mpb1"`, "copy the whole key"},
		{"trust add home", "", exitUsage, "--key and --role are needed", "mpbond trust add --help"},
		{"primary", "", exitUsage, "no server is trusted", "mpbond pair CODE"},
		{"primary --scheduler fast", "", exitUsage, `no scheduler is called "fast"`, "set `scheduler`"},
		{"primary --reinject 0", "", exitUsage, "the reinjection threshold is 0", "like 0.2"},
		{"primary --config /nonexistent.toml", "", exitFailure, "/nonexistent.toml: no such file", "check the path"},
		{"primary", "proxi = \"127.0.0.1:1\"", exitUsage, `primary.toml:1: unknown setting "proxi"`, `did you mean "proxy"?`},
		{"primary", "interfaces = \"auto\"", exitUsage, "interfaces: it is a text, and should be a list of texts", "a setting is written like"},
		{"primary", "subflows = \"two\"", exitUsage, "subflows: it is a text, and should be a number", "a setting is written like"},
		{"primary", "give_up = \"0\"", exitUsage, "streams would give up after 0s", "set `give_up` to a time"},
		{"primary", "give_up = 60", exitUsage, "give_up: 60 has no unit (write it like \"60s\")", "a setting is written like"},
		{"primary", "\nresume = 1.5", exitUsage, "resume: ", "a setting is written like"},
		{"primary", "give_up = \"60\"", exitUsage, "60 has no unit", "a setting is written like"},
		{"primary", "give_up = \"soon\"", exitUsage, "\"soon\" is no time", "a setting is written like"},
		{"server --rate 8", "", exitUsage, `rate "8": it has no unit`, "write a rate like"},
		{"lab flow --length 10", "", exitUsage, `invalid argument "10" for "--length" flag: write a time with its unit, like 60s`, "--help"},
		{"server --listen 7600", "", exitUsage, "listen on 7600", "write an address as HOST:PORT"},
		{"server --rate fast", "", exitUsage, `rate "fast"`, "write a rate like"},
		{"server --allow 10.0.0.1", "", exitUsage, "--allow 10.0.0.1 is no prefix of addresses", "write a prefix like"},
		{"helper --onload=lots", "", exitUsage, `"lots" is no allowance`, "mpbond helper --help"},
		{"helper --onload 200MB", "", exitUsage, "write --onload=200MB", "mpbond helper --help"},
		{"helper --feedback often", "", exitUsage, `feedback "often" is not known`, "there are: flexible"},
		{"status", "", exitNoConn, "no mpbond of this user is running here", "start one"},
		{"streams", "", exitNoConn, "mpbond is not running", "start it"},
		{"get example.org/file", "", exitUsage, `"example.org/file" is no web address`, "write the URL like"},
		{"get http://" + closed + "/x", "", exitNoConn, "mpbond is not running", "start it with `mpbond primary`"},
		{"put nofile --to http://" + closed + "/", "", exitFailure, "nofile: no such file", "nothing was sent"},
		{"play --listen 0.0.0.0:7606", "", exitUsage, "--listen is an address of this device alone", "mpbond play --help"},
	} {
		dir := home(t)
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, "primary.toml"), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, out, errs := mpbond(t, strings.Fields(c.line)...)
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
