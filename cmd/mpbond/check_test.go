// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
)

// TestCheck checks valid and invalid configuration files of each kind.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		file, content string
		want          string // of the error, "" for a valid file
	}{
		{"server.toml", "", ""},
		{"server.toml.new", "listen = \":443\"\npublic = \"vps.example.org:7600\"\nudp = true\n", ""},
		{"server.toml", "listen = \"443\"", `listen is "443"`},
		{"server.toml", "public = \"vps.example.org:port\"", `public is "vps.example.org:port"`},
		{"server.toml", "\nlisden = \":443\"", `server.toml:2: unknown setting "lisden"`},
		{"server.toml", "rate = \"8kbit/s\"", "rate is 8 kbit/s"},
		{"server.toml", "scheduler = \"fast\"", `unknown scheduler "fast"`},
		{"server.toml", "api = \"0.0.0.0:7680\"", "must be a loopback address"},
		{"primary.toml", "pipe = \":7602, rfcomm://3\"\ninterfaces = [\"wlan0\"]\nudp = [\"wlan0\"]", ""},
		{"primary.toml", "pipe = \":7602, 7603\"", `pipe is "7603"`},
		{"primary.toml", "latency = [\"22\"]", `"22"`},
		{"primary.toml", "congestion = \"copa\"", "works over UDP only"},
		{"helper.toml", "battery_floor = 25\n[onload]\nallowance = \"200MB\"", ""},
		{"helper.toml", "[onload]\nallowance = \"caps\"", `the allowance "caps" needs interface`},
		{"helper.toml", "pair = \"x\"", `pair is "x"`},
		{"dual.toml", "[primary]\nproxy = \"\"\n[helper]\nbuffer = \"8MB\"", ""},
		{"dual.toml", "[helper]\nbuffer = \"1KB\"", "[helper]: helper: buffer of"},
		{"policy.toml", "default = \"allow\"", ""},
		{"policy.toml", "default = \"perhaps\"", `"perhaps"`},
	} {
		file := filepath.Join(clitest.Home(t), c.file)
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := clitest.Run(t, mpbondProgram(), "check", file)
		valid := c.want == ""
		if (code == cli.ExitOK) != valid || !valid && code != cli.ExitUsage || errs != "" ||
			!strings.HasPrefix(out, file+":") || !strings.Contains(out, c.want) ||
			valid != strings.HasSuffix(out, ": valid\n") {
			t.Errorf("%s with %q: code %d\n%s%s", c.file, c.content, code, out, errs)
		}
		var list []checkResult
		code, out, errs = clitest.Run(t, mpbondProgram(), "check", "--json", file)
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].File != file ||
			list[0].Valid != valid || (code == cli.ExitOK) != valid || errs != "" ||
			!strings.Contains(list[0].Error, c.want) {
			t.Errorf("%s with %q: code %d, %v\n%s%s", c.file, c.content, code, err, out, errs)
		}
	}
}

// TestCheckAll checks the choice of files: all that exist, or those of the given kind.
func TestCheckAll(t *testing.T) {
	home := clitest.Home(t)
	code, _, errs := clitest.Run(t, mpbondProgram(), "check")
	if code != cli.ExitFailure || !strings.Contains(errs, "no configuration file in") {
		t.Errorf("without files: code %d, %s", code, errs)
	}
	for name, content := range map[string]string{"helper.toml": "", "server.toml": "rate = \"1\"", "other.toml": ""} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := clitest.Run(t, mpbondProgram(), "check")
	if code != cli.ExitUsage || !strings.HasPrefix(out, filepath.Join(home, "server.toml")+":1: rate") ||
		!strings.HasSuffix(out, filepath.Join(home, "helper.toml")+": valid\n") {
		t.Errorf("code %d\n%s", code, out)
	}
	other := filepath.Join(home, "other.toml")
	if code, _, errs := clitest.Run(t, mpbondProgram(), "check", other); code != cli.ExitUsage ||
		!strings.Contains(errs, "add --as server|primary") {
		t.Errorf("code %d, %s", code, errs)
	}
	if code, out, errs := clitest.Run(t, mpbondProgram(), "check", "--as", "helper", other); code != cli.ExitOK {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	if code, _, errs := clitest.Run(t, mpbondProgram(), "check", filepath.Join(home, "dual.toml")); code !=
		cli.ExitFailure || !strings.Contains(errs, "no such file") {
		t.Errorf("code %d, %s", code, errs)
	}
}
