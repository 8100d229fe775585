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

// saveEvery is how often what was learnt of places is written to its file.
const saveEvery = 30 * time.Second

// places is the memory of what each device's subflows carried where this device
// has been. Safe for concurrent use.
type places struct {
	where func() (string, error) // a fake in tests

	mu      sync.Mutex
	file    string // "": nothing is written
	memory  policy.Places
	changed bool
	saved   time.Time
}

// maxPlacesFile bounds the file that is read: several times what policy.Places
// may hold.
const maxPlacesFile = 4 * unit.MB

// keep reads what was learnt of places from a file, which need not exist,
// and writes it there while the primary runs. After an error it begins anew. A file that
// holds something else is kept as FILE.bad, which the error tells.
func (m *places) keep(file string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file = file
	f, err := userfile.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, int64(maxPlacesFile)+1))
		_ = f.Close()
	}
	if err != nil {
		return fmt.Errorf("what was learnt of places: %w", err)
	}
	var memory policy.Places
	if err = json.Unmarshal(data, &memory); len(data) > int(maxPlacesFile) {
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
	m.memory = memory
	return nil
}

// seenHere returns what a device's subflows were seen to carry at this place; zero if nothing is
// known.
func (m *places) seenHere(name string) (seen policy.Seen) {
	place, err := m.where()
	if err != nil || place == "" {
		return seen
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory.Of(place, name)
}

// note takes what the subflows have carried lately into the memory. It is called
// each second.
func (m *places) note(list []endpoint.Steady, log *slog.Logger) {
	if len(list) > 0 {
		if place, err := m.where(); err == nil && place != "" {
			m.mu.Lock()
			for _, r := range list {
				m.memory.Note(time.Now(), place, r.Device, policy.Seen{Down: r.Rx, Up: r.Tx, RTTms: float64(r.RTT.Microseconds()) / 1e3})
			}
			m.changed = true
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	due := m.changed && time.Since(m.saved) >= saveEvery
	m.mu.Unlock()
	if due {
		m.save(log)
	}
}

// save writes the memory, if it has changed. Whenever the process dies the file
// is whole: the old one or the new one.
func (m *places) save(log *slog.Logger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == "" || !m.changed {
		return
	}
	m.changed, m.saved = false, time.Now()
	data, err := json.Marshal(m.memory)
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
