package primary

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// TestPlacesFile: what was learnt comes back from the file, whoever killed the
// process; a broken file is told of and kept aside.
func TestPlacesFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places.json")
	var p places
	if err := p.keep(file); err != nil {
		t.Fatal(err)
	}
	p.memory.Note(time.Now(), "home", "phone", policy.Seen{Down: 5 * unit.Mbps})
	p.changed = true
	p.save(slog.New(slog.DiscardHandler))
	var again places
	if err := again.keep(file); err != nil || again.memory.Of("home", "phone").Down != 5*unit.Mbps {
		t.Errorf("%v, %+v", err, again.memory)
	}
	if list, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"empty": {}, "truncated": whole[:len(whole)-5], "not JSON": []byte("\x7fELF"), "another kind of JSON": []byte(`["home"]`),
		"huge": append(slices.Clone(whole), make([]byte, 100*unit.MB)...), "huge, and would be right": append(slices.Clone(whole), bytes.Repeat([]byte(" "), int(maxPlacesFile))...)} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		again = places{}
		if err := again.keep(file); err == nil || !strings.Contains(err.Error(), "learnt") || !strings.Contains(err.Error(), file+".bad") {
			t.Errorf("%s: %v", name, err)
		}
		if kept, err := os.ReadFile(file + ".bad"); err != nil || !bytes.Equal(kept, bad) {
			t.Errorf("%s: %d bytes are kept of %d: %v", name, len(kept), len(bad), err)
		}
		if again.memory.List != nil {
			t.Errorf("%s: %+v", name, again.memory)
		}
	}
	again.memory.Note(time.Now(), "home", "phone", policy.Seen{Down: 5 * unit.Mbps})
	again.changed = true
	again.save(slog.New(slog.DiscardHandler))
	var last places
	if err := last.keep(file); err != nil || last.memory.Of("home", "phone").Down != 5*unit.Mbps {
		t.Errorf("%+v, %v", last.memory, err)
	}
}
