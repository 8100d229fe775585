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
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/wire"
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

// KeepPlaces reads what was learnt of places from a file, which need not exist,
// and writes it there while Run runs. After an error it begins anew. A file that
// holds something else is kept as FILE.bad, which the error tells.
func (p *Primary) KeepPlaces(file string) error {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.places.file = file
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
	var m policy.Places
	if err = json.Unmarshal(data, &m); len(data) > int(maxPlacesFile) {
		err = errors.New("it is too large")
	}
	if err != nil {
		aside := file + ".bad"
		if moved := userfile.Rename(file, aside); moved != nil {
			return fmt.Errorf("what was learnt of places: %s: %w; it is replaced: %w", file, err, moved)
		}
		return fmt.Errorf("what was learnt of places: %s: %w; it is kept as %s", file, err, aside)
	}
	m.Trim()
	p.places.memory = m
	return nil
}

// terms are those of a subflow that is about to join over t, by the device of
// that name, a helper if slot is not nil, and the rate that it was seen to carry to
// the server.
func (p *Primary) terms(t subflow.Transport, link *pipe.Link, slot *helperSlot, name string) (terms wire.Terms, up unit.Rate) {
	var by carrier
	if link != nil {
		by.helper, terms.Radio = slot.key, link.Radio()
	} else {
		by.link = device.InterfaceOf(t.LocalAddr())
		terms.Radio = device.RadioOf(by.link)
	}
	p.standings.complete(&terms, by)
	if place, err := p.places.where(); err == nil && place != "" {
		p.places.mu.Lock()
		defer p.places.mu.Unlock()
		seen := p.places.memory.Of(place, name)
		terms.Rate, terms.RTT, up = seen.Down, time.Duration(seen.RTTms*float64(time.Millisecond)), seen.Up
	}
	return terms, up
}

// note takes what the subflows have carried lately into the memory. It is called
// each second.
func (m *places) note(p *Primary) {
	p.mu.Lock()
	s := p.cur
	p.mu.Unlock()
	list := s.e.Steady()
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
		m.save(p.log)
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
