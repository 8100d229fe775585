package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"mpbond/base/identity"
	"mpbond/internal/cli"
)

// withoutJSON are commands that have no --json, and why.
var withoutJSON = map[string]string{
	"mpbond server":       "it runs on: status --json tells, and --log-format json logs",
	"mpbond primary":      "as server",
	"mpbond helper":       "as server",
	"mpbond dual":         "as server",
	"mpbond permit serve": "as server, but for status",
	"mpbond run":          "what it prints is its command's",
	"mpbond top":          "a picture for people: status --watch --json has what is in it",
	"mpbond cell grid":    "as top: cell watch --json has what is in it",
	"mpbond lab up":       "it prints nothing: lab ls --json tells",
	"mpbond lab exec":     "as run",
	"mpbond lab set":      "as lab up",
	"mpbond lab start":    "as lab up",
	"mpbond lab rewind":   "as lab up",
	"mpbond lab down":     "as lab up",
	"mpbond lab record":   "it writes files",
	"mpbond lab demo":     "a picture for people: lab run --json has what is in it",
	"mpbond permit":       "it has subcommands",
	"mpbond policy":       "it has subcommands",
	"mpbond cell":         "it has subcommands",
	"mpbond lab":          "it has subcommands",
	"mpbond exp":          "it has subcommands",
	"mpbond trust":        "it has subcommands",
}

// withoutNames are commands with arguments that are no names of anything that is
// known here, so that there is nothing to complete, or files, which shells do.
var withoutNames = map[string]string{
	"mpbond pair":          "codes",
	"mpbond streams":       "a number",
	"mpbond get":           "an address",
	"mpbond put":           "files",
	"mpbond permit ask":    "an address",
	"mpbond permit status": "an address",
	"mpbond run":           "a command",
	"mpbond trust add":     "a new name",
	"mpbond policy check":  "a file",
	"mpbond cell capacity": "a file or socket",
	"mpbond cell stats":    "a file or socket",
	"mpbond cell grid":     "a file or socket",
	"mpbond cell scan":     "a file or socket",
	"mpbond cell watch":    "files or sockets",
	"mpbond policy why":    "an address",
	"mpbond lab up":        "a file",
	"mpbond lab run":       "a file",
	"mpbond lab bound":     "a file",
	"mpbond lab flow":      "a file",
	"mpbond lab replay":    "a file",
	"mpbond lab exec":      "a node of a lab, and a command",
	"mpbond lab record":    "a network of a lab",
	"mpbond lab set":       "a link of a lab, and its properties",
}

// TestCommandsAreComplete: every command shows by an example how it is used, can
// be asked for JSON, and completes arguments that are names.
func TestCommandsAreComplete(t *testing.T) {
	root, _ := thisProgram().Root(&bytes.Buffer{})
	seen := map[string]bool{}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		path := c.CommandPath()
		seen[path] = true
		if c.Hidden {
			return
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
		if c.Example == "" && !c.HasSubCommands() {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.SplitSeq(strings.TrimPrefix(c.Example, "\n"), "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented", path, line)
			}
		}
		if _, excused := withoutJSON[path]; (c.Flags().Lookup("json") == nil) != excused && c != root {
			t.Errorf("%s: --json is there or it is told why not, and not both", path)
		}
		_, args, _ := strings.Cut(c.Use, " ")
		if _, excused := withoutNames[path]; (args != "" && c.ValidArgsFunction == nil) != excused {
			t.Errorf("%s %s: arguments are completed or it is told why not, and not both", path, args)
		}
	}
	check(root)
	for _, list := range []map[string]string{withoutJSON, withoutNames} {
		for path := range list {
			if !seen[path] {
				t.Errorf("there is no %s", path)
			}
		}
	}
}

// TestNamesAreCompleted: names of devices, rows and values of flags.
func TestNamesAreCompleted(t *testing.T) {
	home(t)
	trust, err := openTrust()
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]identity.Role{"home": identity.RoleServer, "phone": identity.RoleHelper} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{role}, Key: key.Public(), Addresses: []string{"h:1"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"rename |": "home phone", "rename phone |": "", "revoke p|": "home phone", "trust remove |": "home phone", "primary --server |": "home",
		"pair --as |": "server helper", "trust add x --role |": "server helper primary", "doctor |": "", "top --log-format |": "text json",
		"helper --feedback f|": "flexible",
	} {
		words := strings.Fields(strings.TrimSuffix(line, "|"))
		if strings.HasSuffix(line, " |") {
			words = append(words, "")
		}
		_, out, errs := mpbond(t, append([]string{"__complete"}, words...)...)
		got := strings.Join(strings.Fields(out[:strings.LastIndex(out, ":")]), " ")
		if got != want && !(strings.HasSuffix(line, "f|") && strings.HasPrefix(got, want)) {
			t.Errorf("%s is completed to %q, want %q (%s)", line, got, want, errs)
		}
	}
	if _, out, _ := mpbond(t, "__complete", "exp", "run", ""); !strings.Contains(out, "\nm3") || !strings.Contains(out, "all\n") {
		t.Errorf("rows: %s", out)
	}
}

// TestDevicesAsJSON: what changes a device tells, with --json, which it was.
func TestDevicesAsJSON(t *testing.T) {
	home(t)
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	add := "trust add --role helper --key " + key.Public().String()
	for _, line := range []string{add + " phone", "rename phone pixel", "revoke pixel", add + " watch", "trust remove watch"} {
		c := strings.Fields(line)
		name := c[len(c)-1]
		code, out, errs := mpbond(t, append(c, "--json")...)
		var d struct{ Name, ID, Key string }
		if err := json.Unmarshal([]byte(out), &d); err != nil || code != cli.ExitOK || d.Name != name || d.ID != key.ID().String() || d.Key == "" || errs != "" {
			t.Errorf("%v: code %d, %v: %s%s", c, code, err, out, errs)
		}
	}
	code, out, errs := mpbond(t, "revoke", "pixel", "--json")
	if code != cli.ExitFailure || out != "" || !strings.Contains(errs, `"kind":"not_found"`) {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}
