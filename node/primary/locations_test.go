// SPDX-License-Identifier: Apache-2.0

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

// TestLocationsFile: learnt rates are read back from the file even after a kill; a broken file is
// reported and kept aside.
func TestLocationsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places.json")
	var p locationMemory
	if err := p.loadLocations(file); err != nil {
		t.Fatal(err)
	}
	p.rates.Record(time.Now(), "home", "phone", policy.SubflowRecord{Down: 5 * unit.Mbps})
	p.hasChanged = true
	p.saveChanges(slog.New(slog.DiscardHandler))
	var again locationMemory
	if err := again.loadLocations(file); err != nil || again.rates.Lookup("home", "phone").Down != 5*unit.Mbps {
		t.Errorf("%v, %+v", err, again.rates)
	}
	if list, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"empty": {}, "truncated": whole[:len(whole)-5], "not JSON": []byte("\x7fELF"),
		"another kind of JSON":     []byte(`["home"]`),
		"huge":                     append(slices.Clone(whole), make([]byte, 100*unit.MB)...),
		"huge, and would be right": append(slices.Clone(whole), bytes.Repeat([]byte(" "), int(maxLocationsFile))...)} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		again = locationMemory{}
		if err := again.loadLocations(file); err == nil || !strings.Contains(err.Error(), "learnt") ||
			!strings.Contains(err.Error(), file+".bad") {
			t.Errorf("%s: %v", name, err)
		}
		if kept, err := os.ReadFile(file + ".bad"); err != nil || !bytes.Equal(kept, bad) {
			t.Errorf("%s: %d bytes are kept of %d: %v", name, len(kept), len(bad), err)
		}
		if again.rates.List != nil {
			t.Errorf("%s: %+v", name, again.rates)
		}
	}
	again.rates.Record(time.Now(), "home", "phone", policy.SubflowRecord{Down: 5 * unit.Mbps})
	again.hasChanged = true
	again.saveChanges(slog.New(slog.DiscardHandler))
	var last locationMemory
	if err := last.loadLocations(file); err != nil || last.rates.Lookup("home", "phone").Down != 5*unit.Mbps {
		t.Errorf("%+v, %v", last.rates, err)
	}
}
