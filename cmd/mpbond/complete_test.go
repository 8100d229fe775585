// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"mpbond/base/identity"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
)

// withoutJSON lists the commands without --json, with the reason.
var withoutJSON = clitest.Excuses{
	"mpbond server":  "it runs on: status --json tells, and --log-format json logs",
	"mpbond primary": "as server",
	"mpbond helper":  "as server",
	"mpbond dual":    "as server",
	"mpbond run":     "what it prints is its command's",
	"mpbond top":     "a picture for people: status --watch --json has what is in it",
	"mpbond policy":  "it has subcommands",
	"mpbond trust":   "it has subcommands",
}

// withoutNames lists commands whose arguments cannot be completed with known names, with the
// reason. Shells complete files themselves.
var withoutNames = clitest.Excuses{
	"mpbond fleet init":   "a new name",
	"mpbond pair":         "codes",
	"mpbond streams":      "a number",
	"mpbond get":          "an address",
	"mpbond put":          "files",
	"mpbond run":          "a command",
	"mpbond trust add":    "a new name",
	"mpbond policy check": "a file",
	"mpbond check":        "files",
	"mpbond policy why":   "an address",
}

func TestCommandsAreComplete(t *testing.T) {
	clitest.CheckCommands(t, mpbondProgram(), withoutJSON, withoutNames)
}

// TestNamesAreCompleted checks the completion of devices, subflows and values of flags.
func TestNamesAreCompleted(t *testing.T) {
	newHome(t)
	trust, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]identity.Role{"home": identity.RoleServer, "phone": identity.RoleHelper} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{role}, Key: key.Public(),
				Addresses: []string{"h:1"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"rename |": "home phone", "rename phone |": "", "revoke p|": "home phone", "trust remove |": "home phone",
		"primary --server |": "home",
		"pair --as |":        "server helper", "trust add x --role |": "server helper primary", "doctor |": "",
		"top --log-format |":   "text json",
		"helper --feedback f|": "flexible",
	} {
		words := strings.Fields(strings.TrimSuffix(line, "|"))
		if strings.HasSuffix(line, " |") {
			words = append(words, "")
		}
		_, out, errs := runProgram(t, append([]string{"__complete"}, words...)...)
		got := strings.Join(strings.Fields(out[:strings.LastIndex(out, ":")]), " ")
		if got != want && !(strings.HasSuffix(line, "f|") && strings.HasPrefix(got, want)) {
			t.Errorf("%s is completed to %q, want %q (%s)", line, got, want, errs)
		}
	}
}

// TestDevicesAsJSON checks that commands that change a device print it with --json.
func TestDevicesAsJSON(t *testing.T) {
	newHome(t)
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	add := "trust add --role helper --key " + key.Public().String()
	for _, line := range []string{add + " phone", "rename phone pixel", "revoke pixel", add + " watch",
		"trust remove watch"} {
		c := strings.Fields(line)
		name := c[len(c)-1]
		code, out, errs := runProgram(t, append(c, "--json")...)
		var d struct{ Name, ID, Key string }
		if err := json.Unmarshal([]byte(out), &d); err != nil || code != cli.ExitOK || d.Name != name ||
			d.ID != key.ID().String() || d.Key == "" || errs != "" {
			t.Errorf("%v: code %d, %v: %s%s", c, code, err, out, errs)
		}
	}
	code, out, errs := runProgram(t, "revoke", "pixel", "--json")
	if code != cli.ExitFailure || out != "" || !strings.Contains(errs, `"kind":"not_found"`) {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}
