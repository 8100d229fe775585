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

// Tuning. The emulator's thread puts what a network tells into slots, and waits for
// nobody: when none is free, the subframe is missed. A machine that is busy holds
// other threads up for tens of milliseconds, sometimes for a second.
const (
	ringSlots = 2048
	// maxListenerBacklog is what may wait for one hearer: half a minute of a busy carrier's
	// messages, some seconds of truth.
	maxListenerBacklog = 1 << 20
)

// slot is what a network tells of one subframe.
type slot struct {
	number int64
	cells  []cell.Subframe
	grants [cell.MaxCells][]cell.Grant
	truth  []lte.Truth // by user
}

// addSubframe copies a cell's messages, which hold until the network's next step.
func (s *slot) addSubframe(f cell.Subframe) {
	s.grants[f.Cell] = append(s.grants[f.Cell][:0], f.Grants...)
	f.Grants = s.grants[f.Cell]
	s.cells = append(s.cells, f)
}

// broadcast brings what a network tells from the emulator's thread to whoever
// connects: control messages as a recording (cell.Writer), or the truth as JSON
// lines (TruthLine), from the subframe at which each came. One who does not read is
// dropped.
type broadcast struct {
	prb     [cell.MaxCells]uint8
	users   []airUser
	ownRNTI cell.RNTI // of the only link, 0 if there are others: who hears for it is told what its modem would tell

	ring           []slot
	written, taken atomic.Uint64 // slots, since the beginning
	wake           chan struct{}

	listenerCount    atomic.Int32 // connected
	droppedListeners atomic.Int64 // hearers, because they did not read
	missedSubframes  atomic.Int64 // subframes, because run was late

	listeners    listenerSet    // of messages and truth
	transmitters []*transmitter // by carrier; none without samples
}

// listenerSet are those who are connected.
type listenerSet struct {
	mu        sync.Mutex
	listeners []*listener // guarded by mu; never changed, but replaced
}

func (a *listenerSet) snapshot() []*listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listeners
}

func (a *listenerSet) addListener(h *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners[:len(a.listeners):len(a.listeners)], h)
}

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

func newBroadcast(cfg lte.Config, users []airUser) *broadcast {
	b := &broadcast{users: users, ring: make([]slot, ringSlots), wake: make(chan struct{}, 1)}
	for i, c := range cfg.Cells {
		b.prb[i] = uint8(c.PRB)
	}
	return b
}

// beginSlot returns the slot for a subframe, nil if nobody hears or none is free. It is
// for the emulator's thread, as commit is.
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

// commitSlot hands the slot of begin on.
func (b *broadcast) commitSlot() {
	b.written.Add(1)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// deliverLoop gives hearers what comes, until done.
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

// deliverSlots gives hearers, and masts, what there is.
func (b *broadcast) deliverSlots() {
	for ; b.taken.Load() < b.written.Load(); b.taken.Add(1) {
		s := &b.ring[b.taken.Load()%ringSlots]
		for _, h := range b.listeners.snapshot() {
			h.appendData(maxListenerBacklog, func() error { return h.encode(s) })
		}
		for _, c := range s.cells {
			if b.transmitters != nil {
				b.transmitters[c.Cell].queueSubframe(c)
			}
		}
	}
}

// acceptListeners takes callers, who join the audience when they are ready.
func (b *broadcast) acceptListeners(l net.Listener, to *listenerSet, ready func(*listener) error) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				slog.Error("lab: nobody can hear any more", "network", l.Addr(), "err", err)
			}
			return
		}
		h := &listener{conn: conn, wake: make(chan struct{}, 1), dropped: &b.droppedListeners}
		if err := ready(h); err != nil {
			slog.Error("lab: control messages", "err", err)
			conn.Close()
			continue
		}
		to.addListener(h)
		b.listenerCount.Add(1)
		go func() {
			h.writeLoop()
			conn.Close()
			b.listenerCount.Add(-1)
			to.removeListener(h)
		}()
	}
}

// setupMessages readies a hearer for control messages.
func (b *broadcast) setupMessages(h *listener) (err error) {
	h.encode, err = h.recordingEncoder(b.prb, b.ownRNTI)
	return err
}

// setupTruth readies one for the truth.
func (b *broadcast) setupTruth(h *listener) error {
	h.encode = h.truthEncoder(b.users)
	return nil
}

// listener is who has connected.
type listener struct {
	conn    net.Conn
	encode  func(*slot) error // appends to buf
	wake    chan struct{}
	dropped *atomic.Int64

	mu      sync.Mutex
	buf     bytes.Buffer // guarded by mu, as encode is
	overrun bool         // it was told more than it reads: it is dropped
}

// recordingEncoder encodes control messages; the head is written at once, and who it is that
// hears, unless that is 0.
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

// truthEncoder encodes the truth.
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

// appendData adds to what waits for the hearer. Who lets more than most wait is dropped.
func (h *listener) appendData(most int, add func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.overrun {
		return
	}
	if err := add(); err != nil {
		slog.Error("lab: a subframe cannot be told", "err", err)
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

// writeLoop sends what there is until the hearer goes or is dropped.
func (h *listener) writeLoop() {
	var chunk []byte
	gone := make(chan struct{})
	go func() { // a hearer says nothing: what ends this is its end
		var one [1]byte
		_, _ = h.conn.Read(one[:])
		close(gone)
	}()
	for {
		select {
		case <-gone:
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
