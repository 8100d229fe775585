// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/internal/cli"
)

// TestDirectories checks the directories, and that services use those that root's commands use.
func TestDirectories(t *testing.T) {
	check := func(state, config string) {
		t.Helper()
		if got, err := cli.HomeDir(); err != nil || got != state {
			t.Errorf("state is in %q (%v), want %q", got, err, state)
		}
		if got, err := cli.ConfigDir(); err != nil || got != config {
			t.Errorf("configuration is in %q (%v), want %q", got, err, config)
		}
	}
	t.Setenv("MPBOND_HOME", "/h")
	check("/h", "/h")
	t.Setenv("MPBOND_HOME", "")
	if os.Geteuid() != 0 {
		t.Setenv("XDG_CONFIG_HOME", "/x")
		check("/x/mpbond", "/x/mpbond")
		return
	}
	if got, err := cli.ConfigDir(); err != nil || got != "/etc/mpbond" {
		t.Errorf("root's configuration is in %q (%v)", got, err)
	}
	for _, role := range []string{"server", "helper", "primary"} {
		unit, err := os.ReadFile("../../packaging/mpbond-" + role + ".service")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"\nEnvironment=MPBOND_HOME=" + cli.RootStateDir + "\n",
			"/mpbond " + role + " --config @sysconfdir@/mpbond/" + role + ".toml --socket " + api.SocketPath(role) + "\n",
		} {
			if !strings.Contains(string(unit), want) {
				t.Errorf("the unit of %s lacks %q", role, want)
			}
		}
	}
}
