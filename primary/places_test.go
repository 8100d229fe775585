package primary

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/policy"
	"mpbond/unit"
)

// TestPlacesFile: what was learnt comes back from the file, whoever killed the
// process; a broken file is told of and replaced.
func TestPlacesFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places.json")
	var p Primary
	if err := p.KeepPlaces(file); err != nil {
		t.Fatal(err)
	}
	p.places.memory.Note(time.Now(), "home", "phone", policy.Seen{Down: 5 * unit.Mbps})
	p.places.changed = true
	p.places.save(slog.New(slog.DiscardHandler))
	var again Primary
	if err := again.KeepPlaces(file); err != nil || again.places.memory.Of("home", "phone").Down != 5*unit.Mbps {
		t.Errorf("%v, %+v", err, again.places.memory)
	}
	if list, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := again.KeepPlaces(file); err == nil || !strings.Contains(err.Error(), "learnt") {
		t.Errorf("a broken file: %v", err)
	}
	again.places.changed = true
	again.places.save(slog.New(slog.DiscardHandler))
	data, err := os.ReadFile(file)
	if err != nil || !json.Valid(data) {
		t.Errorf("%s, %v", data, err)
	}
}
