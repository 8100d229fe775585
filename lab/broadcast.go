// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"mpbond/lab/lte"
	"mpbond/pbe/cell"
)

// The emulator's thread puts what a network sends into slots and never blocks. If no slot is free,
// listeners miss the subframe. A busy machine can hold up other threads for tens of milliseconds,
// sometimes for a second.
const (
	ringSlots = 2048
	// maxListenerBacklog is the most data that may wait for one listener. It is half a minute of a
	// busy carrier's control messages, or some seconds of ground truth.
	maxListenerBacklog = 1 << 20
)

// slot is what a network sends in one subframe.
type slot struct {
	number int64
	cells  []cell.Subframe
	grants [cell.MaxCells][]cell.Grant
	truth  []lte.Truth // by user
}

// copyCellSubframe copies the messages of a cell. The originals are valid only until the network's
// next step.
func (s *slot) copyCellSubframe(f cell.Subframe) {
	s.grants[f.Cell] = append(s.grants[f.Cell][:0], f.Grants...)
	f.Grants = s.grants[f.Cell]
	s.cells = append(s.cells, f)
}

// broadcast passes what a network sends from the emulator's thread to all connected listeners. They
// get control messages as a recording (cell.Writer) or ground truth as JSON lines (TruthLine), from
// the subframe at which they connected. A listener that does not read is dropped.
type broadcast struct {
	prb   [cell.MaxCells]uint8
	users []airUser
	// ownRNTI is the RNTI of the network's only link, 0 if there are several. Listeners for that
	// link receive it, as a modem would report it.
	ownRNTI cell.RNTI

	ring           []slot
	written, taken atomic.Uint64 // slots since the beginning
	wake           chan struct{}

	listenerCount    atomic.Int32 // connected now
	droppedListeners atomic.Int64 // because they did not read
	missedSubframes  atomic.Int64 // because deliverLoop was late

	listeners    listenerSet    // to messages and ground truth
	transmitters []*transmitter // by carrier; none without samples
}

// listenerSet is the set of connected listeners.
type listenerSet struct {
	mu        sync.Mutex
	listeners []*listener // guarded by mu; replaced, never changed
}

// currentListeners returns the listeners of this moment. The slice must not be changed.
func (a *listenerSet) currentListeners() []*listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listeners
}

// addListener adds a listener.
func (a *listenerSet) addListener(h *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners[:len(a.listeners):len(a.listeners)], h)
}

// removeListener removes a listener.
func (a *listenerSet) removeListener(h *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var rest []*listener
	for _, o := range a.listeners {
		if o != h {
			rest = append(rest, o)
		}
	}
	a.listeners = rest
}

// newBroadcast returns a broadcast for a network without listeners.
func newBroadcast(cfg lte.Config, users []airUser) *broadcast {
	b := &broadcast{users: users, ring: make([]slot, ringSlots), wake: make(chan struct{}, 1)}
	for i, c := range cfg.Cells {
		b.prb[i] = uint8(c.PRB)
	}
	return b
}

// beginSlot returns the slot for a subframe, nil if there are no listeners or no slot is free. Only
// the emulator's thread may call beginSlot and commitSlot.
func (b *broadcast) beginSlot(number int64) *slot {
	if b.listenerCount.Load() == 0 {
		return nil
	}
	w := b.written.Load()
	if w-b.taken.Load() == ringSlots {
		b.missedSubframes.Add(1)
		return nil
	}
	s := &b.ring[w%ringSlots]
	s.number, s.cells, s.truth = number, s.cells[:0], s.truth[:0]
	return s
}

// commitSlot publishes the slot that beginSlot returned.
func (b *broadcast) commitSlot() {
	b.written.Add(1)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// deliverLoop delivers published slots until done is closed.
func (b *broadcast) deliverLoop(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-b.wake:
		}
		b.deliverSlots()
	}
}

// deliverSlots delivers all published slots to listeners and transmitters.
func (b *broadcast) deliverSlots() {
	for ; b.taken.Load() < b.written.Load(); b.taken.Add(1) {
		s := &b.ring[b.taken.Load()%ringSlots]
		for _, h := range b.listeners.currentListeners() {
			h.appendToBacklog(maxListenerBacklog, func() error { return h.encode(s) })
		}
		for _, c := range s.cells {
			if b.transmitters != nil {
				b.transmitters[c.Cell].queueSubframe(c)
			}
		}
	}
}

// acceptListeners accepts connections on l. After setup succeeds, the listener joins the set.
func (b *broadcast) acceptListeners(l net.Listener, to *listenerSet, ready func(*listener) error) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				slog.Error("lab: accepting listeners failed", "socket", l.Addr(), "err", err)
			}
			return
		}
		h := &listener{conn: conn, wake: make(chan struct{}, 1), dropped: &b.droppedListeners}
		if err := ready(h); err != nil {
			slog.Error("lab: setting up a listener failed", "err", err)
			conn.Close()
			continue
		}
		to.addListener(h)
		b.listenerCount.Add(1)
		go func() {
			h.runBacklogWriter()
			conn.Close()
			b.listenerCount.Add(-1)
			to.removeListener(h)
		}()
	}
}

// setupMessages makes the listener receive control messages.
func (b *broadcast) setupMessages(h *listener) (err error) {
	h.encode, err = h.recordingEncoder(b.prb, b.ownRNTI)
	return err
}

// setupTruth makes the listener receive ground truth.
func (b *broadcast) setupTruth(h *listener) error {
	h.encode = h.truthEncoder(b.users)
	return nil
}

// listener is one connection to a network's socket.
type listener struct {
	conn    net.Conn
	encode  func(*slot) error // appends to buf
	wake    chan struct{}
	dropped *atomic.Int64

	mu      sync.Mutex
	buf     bytes.Buffer // guarded by mu, as encode is
	overrun bool         // its backlog was too large: it is dropped
}

// recordingEncoder returns an encoder of control messages. It writes the head of the recording at
// once, and self unless that is 0.
func (h *listener) recordingEncoder(prb [cell.MaxCells]uint8, self cell.RNTI) (func(*slot) error, error) {
	w, err := cell.NewWriter(&h.buf, prb)
	if err == nil && self != 0 {
		err = w.WriteSelf(self)
	}
	if err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	h.wake <- struct{}{}
	return func(s *slot) error {
		for _, f := range s.cells {
			if err := w.Write(f); err != nil {
				return err
			}
		}
		return w.Flush()
	}, nil
}

// truthEncoder returns an encoder of ground truth.
func (h *listener) truthEncoder(users []airUser) func(*slot) error {
	var line []byte
	return func(s *slot) error {
		for u, t := range s.truth {
			line = append(line[:0], `{"number":`...)
			line = strconv.AppendInt(line, s.number, 10)
			line = append(line, `,"user":"`...)
			line = append(line, users[u].name...) // needs no escaping: namePattern
			line = append(line, `","rnti":`...)
			line = strconv.AppendUint(line, uint64(users[u].RNTI), 10)
			line = append(line, `,"physical_bps":`...)
			line = strconv.AppendInt(line, int64(ratePerSecond(t.Physical)), 10)
			line = append(line, `,"fair_bps":`...)
			line = strconv.AppendInt(line, int64(ratePerSecond(t.Fair)), 10)
			line = append(line, `,"waiting":`...)
			line = strconv.AppendInt(line, int64(t.Waiting), 10)
			line = append(line, `,"delivered":`...)
			line = strconv.AppendInt(line, int64(t.Delivered), 10)
			line = append(line, `,"carriers":`...)
			line = strconv.AppendInt(line, int64(t.Carriers), 10)
			line = append(line, '}', '\n')
			h.buf.Write(line)
		}
		return nil
	}
}

// appendToBacklog lets add append to the listener's backlog. It drops a listener if its backlog
// exceeds most bytes.
func (h *listener) appendToBacklog(most int, add func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.overrun {
		return
	}
	if err := add(); err != nil {
		slog.Error("lab: encoding a subframe failed", "err", err)
	}
	if h.buf.Len() > most {
		h.overrun = true
		h.dropped.Add(1)
		h.conn.Close()
		return
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// runBacklogWriter sends the backlog until the connection ends or the listener is dropped.
func (h *listener) runBacklogWriter() {
	var chunk []byte
	closed := make(chan struct{})
	go func() { // a listener sends nothing: Read returns at its end
		var one [1]byte
		_, _ = h.conn.Read(one[:])
		close(closed)
	}()
	for {
		select {
		case <-closed:
			return
		case <-h.wake:
		}
		h.mu.Lock()
		chunk = append(chunk[:0], h.buf.Bytes()...)
		h.buf.Reset()
		h.mu.Unlock()
		if _, err := h.conn.Write(chunk); err != nil {
			return
		}
	}
}
