package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/identity"
)

// TestFormerState: root's key of a former version, beside the configuration, is
// found until there is one in the new place, and root is told.
func TestFormerState(t *testing.T) {
	dir := t.TempDir()
	state, former := filepath.Join(dir, "state"), filepath.Join(dir, "etc")
	put := func(dir string) {
		t.Helper()
		if _, err := identity.CreateKey(filepath.Join(dir, KeyFile)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want, says string) {
		t.Helper()
		got := rootStateIn(state, former)
		told := oldState(filepath.Join(got, KeyFile), state, former)
		if got != want || (says == "") != (told == "") || !strings.Contains(told, says) {
			t.Errorf("root's state is in %s, want %s; said is %q, want %q", got, want, told, says)
		}
	}
	check(state, "")
	put(former)
	check(former, "are still in "+former)
	put(state)
	check(state, "is not used")
	if err := os.Remove(filepath.Join(former, KeyFile)); err != nil {
		t.Fatal(err)
	}
	check(state, "")
}
