// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/control/policy"
	"mpbond/node/endpoint"
)

// saveInterval is how often learnt rates are written to the file.
const saveInterval = 30 * time.Second

// locationMemory remembers what the subflows of each device carried at each location of this
// device. Safe for concurrent use.
type locationMemory struct {
	currentLocation func() (string, error) // device.Location; a fake in tests

	mu         sync.Mutex
	file       string // "": nothing is saved
	rates      policy.Locations
	hasChanged bool
	savedAt    time.Time
}

// maxLocationsFile bounds the file that is read: several times what policy.Locations may hold.
const maxLocationsFile = 4 * unit.MB

// loadLocations reads the memory from a file, which need not exist, and saves it there from now on.
// After an error the memory starts empty. A file with other content is renamed to FILE.bad, which
// the error names.
func (m *locationMemory) loadLocations(file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file = file
	var memory policy.Locations
	if err := readStateFile(file, maxLocationsFile, &memory, func() error { return nil }); err != nil {
		return fmt.Errorf("learnt rates: %w", err)
	}
	memory.Trim()
	m.rates = memory
	return nil
}

// ratesAtLocation returns what the subflows of devices carried at this location before. Devices
// that are unknown here are missing.
func (m *locationMemory) ratesAtLocation(devices ...string) map[string]policy.SubflowRecord {
	seen := map[string]policy.SubflowRecord{}
	location, err := m.currentLocation()
	if err != nil || location == "" {
		return seen
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range devices {
		if r := m.rates.Lookup(location, name); r != (policy.SubflowRecord{}) {
			seen[name] = r
		}
	}
	return seen
}

// recordRates adds what the subflows carried lately to the memory, and saves it when due. It is
// called by runMaintenance.
func (m *locationMemory) recordRates(list []endpoint.SteadyRate, log *slog.Logger) {
	if len(list) > 0 {
		if location, err := m.currentLocation(); err == nil && location != "" {
			m.mu.Lock()
			for _, r := range list {
				m.rates.Record(
					time.Now(),
					location,
					r.Device,
					policy.SubflowRecord{Down: r.Rx, Up: r.Tx, RTTms: float64(r.RTT.Microseconds()) / 1e3},
				)
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

// saveChanges writes the memory if it has changed. A crash leaves either the old or the new file.
func (m *locationMemory) saveChanges(log *slog.Logger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == "" || !m.hasChanged {
		return
	}
	m.hasChanged, m.savedAt = false, time.Now()
	data, err := json.Marshal(m.rates)
	if err == nil {
		err = replaceSavedFile(m.file, data)
	}
	if err != nil {
		log.Warn("learnt rates not saved", "err", err)
	}
}

// replaceSavedFile replaces a file. Only one process may do so at a time; it overwrites what a
// killed process left.
func replaceSavedFile(path string, data []byte) error {
	f, err := userfile.CreateNew(path + ".new")
	if err != nil {
		return err
	}
	return userfile.Replace(f, path, data)
}
