// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// historyMemory remembers the sizes of messages between apps and destinations, and at which
// intervals they begin, so that the choice of subflows need not wait until a stream has shown it. A
// destination is stored as a keyed hash; whoever can read the file, which has the key, can check
// guesses. Helpers get none of it. The server gets the size that is expected of an answer, and when
// the app needs it. Safe for concurrent use.
type historyMemory struct {
	saving     sync.Mutex // held while the file changes; taken before mu
	mu         sync.Mutex
	file       string // "": nothing is saved
	state      savedHistory
	forgotten  int // how often all was forgotten: streams that began before are not learnt
	forecasts  policy.Forecasts
	hasChanged bool
	open       openAnswers // it has a lock of its own
}

// savedHistory is the content of the file.
type savedHistory struct {
	Version int    `json:"version"` // historyVersion
	Key     []byte `json:"key"`
	policy.History
}

const (
	historyVersion = 1
	historyKeyLen  = 32
	// maxHistoryFile bounds the file that is read: several times what policy.History may hold.
	maxHistoryFile = 8 * unit.MB
)

// loadHistory reads the memory from a file, which need not exist, and saves it there from now on.
// After an error the memory starts empty. A file with other content is renamed to FILE.bad, which
// the error names.
func (m *historyMemory) loadHistory(file string) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file = file
	var state savedHistory
	err := readStateFile(file, maxHistoryFile, &state, func() error {
		if state.Version != historyVersion || len(state.Key) != historyKeyLen {
			return errors.New("it is of another version, or has no key")
		}
		return nil
	})
	if err != nil {
		m.state = savedHistory{}
		return fmt.Errorf("history of destinations: %w", err)
	}
	state.Trim(time.Now())
	m.state = state
	return nil
}

// forgetHistory removes the memory and its file, with what was put aside of it.
func (m *historyMemory) forgetHistory() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	m.state, m.forecasts, m.hasChanged = savedHistory{}, policy.Forecasts{}, false
	m.forgotten++
	m.mu.Unlock()
	if m.file == "" {
		return nil
	}
	var failed []error
	for _, suffix := range []string{"", ".new", ".bad"} {
		if err := userfile.Remove(m.file + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("history of destinations: %w", err))
		}
	}
	return errors.Join(failed...)
}

// historyNames are the names by which the messages of a stream are stored, down and up.
type historyNames struct {
	ofDest [2]string
	ofApp  [2]string // of the app at that destination; "" if it is unknown
}

// hashNames returns the names for an app, "" if it is unknown, and a destination.
func (m *historyMemory) hashNames(app, dest string) (names historyNames) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.state.Key) == 0 {
		m.state.Key = make([]byte, historyKeyLen)
		_, _ = rand.Read(m.state.Key) // never fails
	}
	hash := func(app string, up int) string {
		h := hmac.New(sha256.New, m.state.Key)
		fmt.Fprintf(h, "%q %q %d", app, dest, up)
		return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
	}
	for up := range names.ofDest {
		names.ofDest[up] = hash("", up)
		if app != "" {
			names.ofApp[up] = hash(app, up)
		}
	}
	return names
}

// countForgotten returns how often all was forgotten.
func (m *historyMemory) countForgotten() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgotten
}

// recordMessage adds a message of a stream that began when all had been forgotten that often.
func (m *historyMemory) recordMessage(now time.Time, names *historyNames, x policy.Message, forgotten int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if forgotten != m.forgotten {
		return
	}
	for _, name := range [...]string{names.ofDest[directionIndex(x.Up)], names.ofApp[directionIndex(x.Up)]} {
		if name != "" {
			m.state.Record(now, name, x.Size)
		}
	}
	m.hasChanged = true
}

// directionIndex returns the index of a direction.
func directionIndex(up bool) int {
	if up {
		return 1
	}
	return 0
}

// recordForecast adds a forecast.
func (m *historyMemory) recordForecast(f policy.Forecast) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forecasts.AddForecast(f)
}

// listForecasts returns the latest forecasts, the newest first, and their median error.
func (m *historyMemory) listForecasts() (list []policy.Forecast, median float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	median, _ = m.forecasts.MedianError()
	return m.forecasts.ListForecasts(), median
}

// expectBeyond returns how many bytes of a message are expected after sent ones, 0 if that is
// unknown.
func (m *historyMemory) expectBeyond(names *historyNames, up bool, sent unit.Bytes) unit.Bytes {
	m.mu.Lock()
	defer m.mu.Unlock()
	more, _ := m.lookupMessages(names, up).ExpectBeyond(sent)
	return more
}

// historySaveInterval is how often a history that has changed is saved. It is some 100 KB, and the
// loss of its newest part costs little.
const historySaveInterval = 10 * time.Minute

// recordRequest adds the beginning of a request of a stream that began when all had been forgotten
// that often.
func (m *historyMemory) recordRequest(now time.Time, names *historyNames, forgotten int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if forgotten != m.forgotten {
		return
	}
	for _, list := range [...][2]string{names.ofDest, names.ofApp} {
		for _, name := range list {
			if name != "" && m.state.RecordBegin(now, name) {
				m.hasChanged = true
			}
		}
	}
}

// neededAt returns when the app needs the present message, of a size so far; zero: as soon as
// possible.
func (m *historyMemory) neededAt(names *historyNames, up bool, size unit.Bytes) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookupMessages(names, up).NeededAt(size)
}

// lookupMessages returns the known messages of an app at a destination. If the app was not seen there,
// it returns those of all apps. mu must be held.
func (m *historyMemory) lookupMessages(names *historyNames, up bool) *policy.Destination {
	if d := m.state.Lookup(names.ofApp[directionIndex(up)]); d != nil {
		return d
	}
	return m.state.Lookup(names.ofDest[directionIndex(up)])
}

// runSaving saves the memory at intervals until ctx ends.
func (m *historyMemory) runSaving(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(historySaveInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		m.saveChanges(log)
	}
}

// saveChanges writes the memory if it has changed. A crash leaves either the old or the new file.
// The file is written without mu, for which endpoints wait.
func (m *historyMemory) saveChanges(log *slog.Logger) {
	m.saving.Lock()
	defer m.saving.Unlock()
	state, changed := m.takeChanges()
	if !changed {
		return
	}
	data, err := json.Marshal(state)
	if err == nil {
		err = replaceSavedFile(m.file, data)
	}
	if err != nil {
		log.Warn("history of destinations not saved", "err", err)
		m.mu.Lock()
		m.hasChanged = true
		m.mu.Unlock()
	}
}

// takeChanges returns a copy of what is to be saved; false if nothing is.
func (m *historyMemory) takeChanges() (state savedHistory, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == "" || !m.hasChanged {
		return state, false
	}
	m.hasChanged = false
	return savedHistory{Version: historyVersion, Key: slices.Clone(m.state.Key), History: m.state.Clone()}, true
}

// streamHistory learns the messages of one stream and passes on what is expected of them. It
// implements endpoint.Observer: the endpoint calls it with its lock held.
type streamHistory struct {
	memory    *historyMemory
	places    *placeRates
	dest      string
	stream    observedStream
	forgotten int // of the memory, when the stream began
	app       string
	names     historyNames
	messages  policy.Messages
	down, up  expectation
	answer    answerForecast
	progress  answerProgress
}

// observedStream is the part of endpoint.ObservedStream that a streamHistory needs.
type observedStream interface {
	App() string
	ExpectMessage(now time.Time, up bool, e bond.Expectation) bool
	Candidates(up bool) []endpoint.NamedCandidate
}

// expectation has what is expected of the present message in one direction of a stream.
type expectation struct {
	moved    wire.DataSeq     // bytes so far
	passedOn bond.Expectation // the last one; the zero value: nothing is expected
	checkAt  unit.Bytes       // size of the present message at which to ask the history again
}

// newStreamHistory returns the history of a stream that begins.
func newStreamHistory(m *historyMemory, places *placeRates, dest string, s observedStream) *streamHistory {
	h := &streamHistory{memory: m, places: places, dest: dest, stream: s, forgotten: m.countForgotten(),
		names: m.hashNames("", dest)}
	m.open.addStream(&h.progress)
	return h
}

// RecordMovedBytes implements endpoint.Observer.
func (h *streamHistory) RecordMovedBytes(now time.Time, up bool, n unit.Bytes) {
	h.refreshNames()
	ended, hasEnded := h.messages.AddBytes(now, up, n, h.leastRTT)
	if hasEnded {
		h.recordMessage(now, ended)
	}
	e := h.direction(up)
	e.moved += wire.DataSeq(n)
	size := h.messages.PresentSize(now, up)
	if up && size > 0 && size == n {
		h.memory.recordRequest(now, &h.names, h.forgotten)
	}
	if size > 0 && (size == n || size >= e.checkAt) {
		h.passOnExpectation(now, up, size)
	}
	switch {
	case up && n >= policy.LeastMessage: // an answer may follow
		h.progress.recordRequest(now)
		h.expectAnswer(now)
	case !up:
		h.progress.recordBytes(now, size)
		if size >= leastForecast && h.answer.at.IsZero() {
			h.answer = h.forecastAnswer(now, size)
		}
	}
}

// RecordEnd implements endpoint.Observer. Messages that were cut are not learnt.
func (h *streamHistory) RecordEnd(now time.Time, complete bool) {
	h.memory.open.removeStream(&h.progress)
	for _, x := range h.messages.EndOpen() {
		if complete {
			h.recordMessage(now, x)
		}
	}
}

// direction returns what is expected of a direction.
func (h *streamHistory) direction(up bool) *expectation {
	if up {
		return &h.up
	}
	return &h.down
}

// leastRTT returns the least round trip of the subflows, 0 if it is unknown.
func (h *streamHistory) leastRTT() (least time.Duration) {
	for _, c := range h.stream.Candidates(false) {
		if rtt := cmp.Or(c.MinRTT, c.RTT); rtt > 0 && (least == 0 || rtt < least) {
			least = rtt
		}
	}
	return least
}

// refreshNames updates the names by which messages are stored, when the app became known.
func (h *streamHistory) refreshNames() {
	if app := h.stream.App(); app != h.app && app != api.AppUnknown {
		h.app, h.names = app, h.memory.hashNames(app, h.dest)
	}
}

// recordMessage records a message that has ended, and how right the forecast of an answer was.
func (h *streamHistory) recordMessage(now time.Time, x policy.Message) {
	h.memory.recordMessage(now, &h.names, x, h.forgotten)
	if x.Up {
		return
	}
	if f := h.answer; !f.at.IsZero() && x.Size-f.arrived >= leastForecast {
		h.memory.recordForecast(f.compareWith(x, h.stream.Candidates(false)))
	}
	h.answer = answerForecast{}
}

// passOnExpectation passes on what is expected of the present message of a direction, of a size so far.
func (h *streamHistory) passOnExpectation(now time.Time, up bool, size unit.Bytes) {
	e, more := h.direction(up), h.memory.expectBeyond(&h.names, up, size)
	e.checkAt = max(2*size, leastForecast)
	next := bond.Expectation{NeededAt: h.memory.neededAt(&h.names, up, size)}
	switch {
	case more > 0:
		e.checkAt = size + more + 1
		next.End = e.moved + wire.DataSeq(more)
	case e.passedOn.End == e.moved: // it has ended where it was expected to
		next.End = e.moved
	}
	h.passOn(now, up, next)
}

// expectAnswer passes on what is expected of the answer to a request. If the answer to an earlier one
// still arrives, the new one follows it.
func (h *streamHistory) expectAnswer(now time.Time) {
	begins := h.down.moved
	if size := h.messages.PresentSize(now, false); size > 0 {
		left := int64(h.down.passedOn.End) - int64(begins)
		if left < 0 || left > int64(size)/nearEnd {
			return // it is not known where the present answer ends, or it has just begun
		}
		begins = h.down.passedOn.End
	}
	next := bond.Expectation{NeededAt: h.memory.neededAt(&h.names, false, 0)}
	if more := h.memory.expectBeyond(&h.names, false, 0); more > 0 {
		next.End = begins + wire.DataSeq(more)
	}
	h.passOn(now, false, next)
	h.down.checkAt = 0 // further bytes of the present answer ask the history again
}

// nearEnd is the part of an answer that may be missing when the app makes its next request.
const nearEnd = 8

// passOn passes on what is expected of a message, if that has changed.
func (h *streamHistory) passOn(now time.Time, up bool, next bond.Expectation) {
	e := h.direction(up)
	next.At = e.passedOn.At
	if next == e.passedOn {
		return
	}
	if next.At = e.moved; h.stream.ExpectMessage(now, up, next) {
		e.passedOn = next
	}
}
