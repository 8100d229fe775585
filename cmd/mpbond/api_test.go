// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/internal/cli"
)

// TestAPIOverTCP checks that each role answers on a TCP port only with the token, and never to a
// web page.
func TestAPIOverTCP(t *testing.T) {
	for _, args := range [][]string{
		{"server", "--listen", "127.0.0.1:0"}, {"helper"},
		{"primary", "--proxy", "127.0.0.1:0", "--transparent", "0", "--pipe", ""},
	} {
		t.Run(args[0], func(t *testing.T) {
			dir := newPairedHome(t)
			file := filepath.Join(dir, args[0]+".toml")
			if err := os.WriteFile(file, []byte("api = \"0.0.0.0:0\"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			expectFailure(t, cli.ExitUsage, "must be a loopback address", "ssh -L", args...)
			_, log := startRole(t, append(args, "--api", "127.0.0.1:0")...) // which goes first
			var addr string
			awaitStatus(t, args[0], log, func(s api.Status) bool { addr = s.API; return true })
			token, err := os.ReadFile(filepath.Join(dir, "api.token"))
			if err != nil {
				t.Fatal(err)
			}
			c := client.NewTCP(addr, strings.TrimSpace(string(token)))
			defer c.Close()
			if s, err := c.Status(t.Context(), false); err != nil || s.Role != args[0] {
				t.Error(s, err)
			}
			if list, err := c.Devices(t.Context()); err != nil || len(list) != 4 || !list[0].Self {
				t.Error(list, err)
			}
			for n, err := range c.Events(t.Context(), 0) {
				if err != nil || n.Position == nil {
					t.Error(n, err)
				}
				break
			}
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/v2/status", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Origin", "http://evil.example")
			answer, err := http.DefaultClient.Do(req)
			if err != nil || answer.StatusCode != http.StatusForbidden {
				t.Fatal(answer, err)
			}
			answer.Body.Close()
			if !strings.Contains(log.String(), addr) || strings.Contains(log.String(),
				strings.TrimSpace(string(token))) {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
	newPairedHome(t)
	expectFailure(t, cli.ExitUsage, "must be a loopback address", "ssh -L", "server", "--listen", "127.0.0.1:0",
		"--api", "0.0.0.0:0")
	for _, table := range []string{"", "[helper]\n"} {
		file := filepath.Join(os.Getenv("MPBOND_HOME"), "dual.toml")
		text := "[primary]\nproxy = \"\"\ntransparent = 0\npipe = \"\"\n" + table + "api = \"0.0.0.0:0\"\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		expectFailure(t, cli.ExitUsage, "must be a loopback address", "ssh -L", "dual")
	}
	token := filepath.Join(os.Getenv("MPBOND_HOME"), "api.token")
	// whatever the umask
	if err := errors.Join(os.WriteFile(token, []byte("x"), 0o600), os.Chmod(token, 0o644)); err != nil {
		t.Fatal(err)
	}
	expectFailure(t, cli.ExitRefused, "others can read it", "remove it", "server", "--listen", "127.0.0.1:0", "--api",
		"127.0.0.1:0")
}

// TestEventsOfNobody checks the error of `mpbond events` without a running mpbond.
func TestEventsOfNobody(t *testing.T) {
	newHome(t)
	code, _, errs := runProgram(t, "events", "--json")
	if code != cli.ExitNoConnection || !strings.Contains(errs, string(fault.NotRunning)) {
		t.Errorf("code %d: %s", code, errs)
	}
}

// TestDevicesAreChanged renames, pauses and revokes devices over the API and by commands, at each
// role, and checks the events.
func TestDevicesAreChanged(t *testing.T) {
	for _, args := range [][]string{
		{"server", "--listen", "127.0.0.1:0"}, {"helper"},
		{"primary", "--proxy", "127.0.0.1:0", "--transparent", "0", "--pipe", ""},
	} {
		t.Run(args[0], func(t *testing.T) {
			newPairedHome(t)
			_, log := startRole(t, args...)
			c := client.New(api.SocketPath(args[0]))
			defer c.Close()
			list, err := c.Devices(t.Context())
			if err != nil || len(list) != 4 {
				t.Fatal(list, err)
			}
			name, other := list[3].Name, list[2].Name
			if err := c.RenameDevice(t.Context(), name, other); !fault.Is(err, fault.Exists) {
				t.Errorf("a name that is taken: %v", err)
			}
			if err := c.RenameDevice(t.Context(), "nobody", "x"); !fault.Is(err, fault.NotFound) ||
				fault.HintOf(err) == "" {
				t.Errorf("nobody: %v", err)
			}
			if err := c.RenameDevice(t.Context(), name, "a b"); !fault.Is(err, fault.Usage) {
				t.Errorf("a name that none can have: %v", err)
			}
			if err := c.PauseDevice(t.Context(), "nobody", true); !fault.Is(err, fault.NotFound) {
				t.Errorf("nobody is paused: %v", err)
			}
			for _, d := range list {
				want := fault.Kind("")
				switch {
				case d.Self:
					continue
				case slices.Equal(d.Roles, []string{"server"}):
					want = fault.Usage
				}
				if err := c.PauseDevice(t.Context(), d.Name, true); fault.KindOf(err) != want {
					t.Errorf("%+v is paused: %v", d, err)
				}
				one, err := c.Devices(t.Context())
				if at := slices.IndexFunc(one, func(o api.Device) bool {
					return o.Name == d.Name &&
						o.Paused
				}); err != nil || (at >= 0) != (want == "") {
					t.Errorf("%s: %+v, %v", d.Name, one, err)
				}
			}
			for _, command := range []string{"resume", "pause"} { // what the API does the commands do
				if code, _, errs := runProgram(t, command, "my-helper"); code != 0 {
					t.Errorf("%s: %d, %s", command, code, errs)
				}
			}
			if code, out, errs := runProgram(t, "devices"); code != 0 || !strings.Contains(out, "paused") {
				t.Errorf("%d, %s%s", code, out, errs)
			}
			expectFailure(t, cli.ExitUsage, "my-server is a server", "use another server", "pause", "my-server")
			if err := c.PauseDevice(t.Context(), "my-helper", false); err != nil {
				t.Error(err)
			}
			if err := errors.Join(c.RenameDevice(t.Context(), name, "new"),
				c.RevokeDevice(t.Context(), other)); err != nil {
				t.Fatal(err)
			}
			if list, err = c.Devices(t.Context()); err != nil || len(list) != 3 || list[2].Name != "new" {
				t.Error(list, err)
			}
			var got []string
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for n, err := range c.Events(ctx, 0) {
				if err != nil {
					t.Fatalf("after %q: %v", got, err)
				}
				if e := n.Change; e != nil && (e.Kind == "device_renamed" || e.Kind == "device_removed") {
					got = append(got, e.Kind+" "+e.Device+" "+e.Text)
				}
				if len(got) == 2 {
					break
				}
			}
			if want := []string{"device_renamed new " + name, "device_removed " + other + " "}; !slices.Equal(got,
				want) {
				t.Errorf("%q, want %q\n%s", got, want, log)
			}
			_, err = c.Pair(t.Context(), api.PairRequest{Codes: []string{"K7QF"}})
			if want := map[bool]fault.Kind{true: fault.Usage,
				false: fault.Unsupported}[args[0] == "primary"]; !fault.Is(err, want) {
				t.Errorf("a code: %v", err)
			}
		})
	}
}
