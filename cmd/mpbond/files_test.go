package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/identity"
)

// TestDirectories: where files are; and services have them where root's commands
// look for them.
func TestDirectories(t *testing.T) {
	check := func(state, config string) {
		t.Helper()
		if got, err := homeDir(); err != nil || got != state {
			t.Errorf("state is in %q (%v), want %q", got, err, state)
		}
		if got, err := configDir(); err != nil || got != config {
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
	check(rootStateIn(rootState, rootConfig), rootConfig)
	for _, role := range []string{"server", "helper", "primary"} {
		unit, err := os.ReadFile("../../packaging/mpbond-" + role + ".service")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"\nEnvironment=MPBOND_HOME=" + rootState + "\n",
			"/mpbond " + role + " --config @sysconfdir@/mpbond/" + role + ".toml --socket " + api.SocketPath(role) + "\n",
		} {
			if !strings.Contains(string(unit), want) {
				t.Errorf("the unit of %s lacks %q", role, want)
			}
		}
	}
}

// TestFormerState: root's key of a former version, beside the configuration, is
// found until there is one in the new place, and root is told.
func TestFormerState(t *testing.T) {
	dir := t.TempDir()
	state, former := filepath.Join(dir, "state"), filepath.Join(dir, "etc")
	put := func(dir string) {
		t.Helper()
		if _, err := identity.CreateKey(filepath.Join(dir, keyFile)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want, says string) {
		t.Helper()
		got := rootStateIn(state, former)
		told := oldState(filepath.Join(got, keyFile), state, former)
		if got != want || (says == "") != (told == "") || !strings.Contains(told, says) {
			t.Errorf("root's state is in %s, want %s; said is %q, want %q", got, want, told, says)
		}
	}
	check(state, "")
	put(former)
	check(former, "are still in "+former)
	put(state)
	check(state, "is not used")
	if err := os.Remove(filepath.Join(former, keyFile)); err != nil {
		t.Fatal(err)
	}
	check(state, "")
}
