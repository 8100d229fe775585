// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
)

// TestRevokeOnAFullDisk checks that the command and the API cut a device off at once, report that
// this is not saved, and save it when there is room.
func TestRevokeOnAFullDisk(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	t.Setenv("MPBOND_HOME", dir)
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stolen", "lost", "kept"} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RolePrimary}, Key: key.Public()})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, log := startRole(t, "server", "--listen", "127.0.0.1:0")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	code, _, errs := runProgram(t, "revoke", "stolen")
	if code == 0 || !strings.Contains(errs, "not yet written") || !strings.Contains(errs, "no space left") ||
		!strings.Contains(errs, "server") || !strings.Contains(errs, "restart") {
		t.Errorf("%d, %s", code, errs)
	}
	c := client.New(api.SocketPath("server"))
	defer c.Close()
	if err := c.RevokeDevice(t.Context(), "lost"); !fault.Is(err, fault.NotSaved) || fault.HintOf(err) == "" {
		t.Errorf("by the API: %v", err)
	}
	awaitStatus(t, "server", log, func(s api.Status) bool {
		return slices.Equal(s.Unsaved, []string{"lost", "stolen"}) &&
			!slices.ContainsFunc(s.Devices, func(d api.Device) bool { return d.Name == "stolen" || d.Name == "lost" })
	})
	if code, out, errs := runProgram(t, "status"); code != 0 ||
		!strings.Contains(out, "a restart would trust them again: lost, stolen") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if err := trust.Reload(); err != nil || len(trust.Peers()) != 3 {
		t.Errorf("the file has %v, %v", trust.Peers(), err)
	}
	// The role closes connections because it notices the change.
	if !strings.Contains(log.String(), "trust file reread") {
		t.Errorf("the role does not know:\n%s", log)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, "server", log, func(s api.Status) bool { return len(s.Unsaved) == 0 })
	if err := trust.Reload(); err != nil || len(trust.Peers()) != 1 || trust.Peers()[0].Name != "kept" {
		t.Errorf("the file has %v, %v", trust.Peers(), err)
	}
}

// TestRevokeUnread checks that the command cuts a device off at once in the running mpbond if the
// trust file cannot be read, says so, and that it is saved later.
func TestRevokeUnread(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("MPBOND_HOME", dir)
	path := filepath.Join(dir, "trust.toml")
	trust, err := identity.OpenTrust(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stolen", "kept"} {
		key, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RolePrimary}, Key: key.Public()})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	spoil := func() {
		t.Helper()
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	code, _, errs := runProgram(t, "revoke", "stolen")
	if code == 0 || !strings.Contains(errs, "may still be trusted") || !strings.Contains(errs, "open to other users") ||
		!strings.Contains(errs, "chmod") {
		t.Errorf("without a process: %d, %s", code, errs)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, log := startRole(t, "server", "--listen", "127.0.0.1:0")
	spoil()
	code, _, errs = runProgram(t, "revoke", "stolen")
	if code == 0 || !strings.Contains(errs, "not yet written") || !strings.Contains(errs, "open to other users") ||
		!strings.Contains(errs, "server") || !strings.Contains(errs, "restart") {
		t.Errorf("%d, %s", code, errs)
	}
	if code, _, errs := runProgram(t, "revoke", "tpyo"); code == 0 || strings.Contains(errs, "still trusted") ||
		!strings.Contains(errs, `(server) trusts no device called "tpyo"`) || !strings.Contains(errs, "chmod") {
		t.Errorf("an unknown device: %d, %s", code, errs)
	}
	awaitStatus(t, "server", log, func(s api.Status) bool {
		return slices.Equal(s.Unsaved, []string{"stolen"}) &&
			!slices.ContainsFunc(s.Devices, func(d api.Device) bool { return d.Name == "stolen" })
	})
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, "server", log, func(s api.Status) bool { return len(s.Unsaved) == 0 })
	if err := trust.Reload(); err != nil || len(trust.Peers()) != 1 || trust.Peers()[0].Name != "kept" {
		t.Errorf("the file has %v, %v", trust.Peers(), err)
	}
}
