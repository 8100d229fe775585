package primary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/control/policy"
	"mpbond/node/endpoint"
)

// saveInterval is how often what was learnt of places is written to its file.
const saveInterval = 30 * time.Second

// locationMemory is the memory of what each device's subflows carried where this device
// has been. Safe for concurrent use.
type locationMemory struct {
	currentLocation func() (string, error) // a fake in tests

	mu         sync.Mutex
	file       string // "": nothing is written
	rates      policy.Locations
	hasChanged bool
	savedAt    time.Time
}

// maxLocationsFile bounds the file that is read: several times what policy.Locations
// may hold.
const maxLocationsFile = 4 * unit.MB

// loadFrom reads what was learnt of places from a file, which need not exist,
// and writes it there while the primary runs. After an error it begins anew. A file that
// holds something else is kept as FILE.bad, which the error tells.
func (m *locationMemory) loadFrom(file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file = file
	f, err := userfile.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, int64(maxLocationsFile)+1))
		_ = f.Close()
	}
	if err != nil {
		return fmt.Errorf("what was learnt of places: %w", err)
	}
	var memory policy.Locations
	if err = json.Unmarshal(data, &memory); len(data) > int(maxLocationsFile) {
		err = errors.New("it is too large")
	}
	if err != nil {
		aside := file + ".bad"
		if moved := userfile.Rename(file, aside); moved != nil {
			return fmt.Errorf("what was learnt of places: %s: %w; it is replaced: %w", file, err, moved)
		}
		return fmt.Errorf("what was learnt of places: %s: %w; it is kept as %s", file, err, aside)
	}
	memory.Trim()
	m.rates = memory
	return nil
}

// ratesHere returns what a device's subflows were seen to carry at this place; zero if nothing is
// known.
func (m *locationMemory) ratesHere(name string) (seen policy.SubflowRecord) {
	place, err := m.currentLocation()
	if err != nil || place == "" {
		return seen
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rates.Lookup(place, name)
}

// recordRates takes what the subflows have carried lately into the memory. It is called
// each second.
func (m *locationMemory) recordRates(list []endpoint.SteadyRate, log *slog.Logger) {
	if len(list) > 0 {
		if place, err := m.currentLocation(); err == nil && place != "" {
			m.mu.Lock()
			for _, r := range list {
				m.rates.Record(time.Now(), place, r.Device, policy.SubflowRecord{Down: r.Rx, Up: r.Tx, RTTms: float64(r.RTT.Microseconds()) / 1e3})
			}
			m.hasChanged = true
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	due := m.hasChanged && time.Since(m.savedAt) >= saveInterval
	m.mu.Unlock()
	if due {
		m.saveChanges(log)
	}
}

// saveChanges writes the memory, if it has changed. Whenever the process dies the file
// is whole: the old one or the new one.
func (m *locationMemory) saveChanges(log *slog.Logger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == "" || !m.hasChanged {
		return
	}
	m.hasChanged, m.savedAt = false, time.Now()
	data, err := json.Marshal(m.rates)
	if err == nil {
		err = replaceFile(m.file, data)
	}
	if err != nil {
		log.Warn("what was learnt of this place is not kept", "err", err)
	}
}

// replaceFile is for one process at a time: what one that was killed left is
// replaced by the next one.
func replaceFile(path string, data []byte) error {
	f, err := userfile.CreateNew(path + ".new")
	if err != nil {
		return err
	}
	return userfile.Replace(f, path, data)
}
