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
	slots = 2048
	// maxBehind is what may wait for one hearer: half a minute of a busy carrier's
	// messages, some seconds of truth.
	maxBehind = 1 << 20
)

// slot is what a network tells of one subframe.
type slot struct {
	number int64
	cells  []cell.Subframe
	grants [cell.MaxCells][]cell.Grant
	truth  []lte.Truth // by user
}

// add copies a cell's messages, which hold until the network's next step.
func (s *slot) add(f cell.Subframe) {
	s.grants[f.Cell] = append(s.grants[f.Cell][:0], f.Grants...)
	f.Grants = s.grants[f.Cell]
	s.cells = append(s.cells, f)
}

// broadcast brings what a network tells from the emulator's thread to whoever
// connects: control messages as a recording (cell.Writer), or the truth as JSON
// lines (TruthLine), from the subframe at which each came. One who does not read is
// dropped.
type broadcast struct {
	prb   [cell.MaxCells]uint8
	users []airUser
	self  cell.RNTI // of the only link, 0 if there are others: who hears for it is told what its modem would tell

	ring           []slot
	written, taken atomic.Uint64 // slots, since the beginning
	more           chan struct{}

	hearers atomic.Int32 // connected
	dropped atomic.Int64 // hearers, because they did not read
	missed  atomic.Int64 // subframes, because run was late

	told  audience // of messages and truth
	masts []*mast  // by carrier; none without samples
}

// audience are those who are connected.
type audience struct {
	mu  sync.Mutex
	all []*hearer // guarded by mu; never changed, but replaced
}

func (a *audience) now() []*hearer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

func (a *audience) join(h *hearer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all[:len(a.all):len(a.all)], h)
}

func (a *audience) leave(h *hearer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var rest []*hearer
	for _, o := range a.all {
		if o != h {
			rest = append(rest, o)
		}
	}
	a.all = rest
}

func newBroadcast(cfg lte.Config, users []airUser) *broadcast {
	b := &broadcast{users: users, ring: make([]slot, slots), more: make(chan struct{}, 1)}
	for i, c := range cfg.Cells {
		b.prb[i] = uint8(c.PRB)
	}
	return b
}

// begin returns the slot for a subframe, nil if nobody hears or none is free. It is
// for the emulator's thread, as commit is.
func (b *broadcast) begin(number int64) *slot {
	if b.hearers.Load() == 0 {
		return nil
	}
	w := b.written.Load()
	if w-b.taken.Load() == slots {
		b.missed.Add(1)
		return nil
	}
	s := &b.ring[w%slots]
	s.number, s.cells, s.truth = number, s.cells[:0], s.truth[:0]
	return s
}

// commit hands the slot of begin on.
func (b *broadcast) commit() {
	b.written.Add(1)
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// run gives hearers what comes, until done.
func (b *broadcast) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-b.more:
		}
		b.pass()
	}
}

// pass gives hearers, and masts, what there is.
func (b *broadcast) pass() {
	for ; b.taken.Load() < b.written.Load(); b.taken.Add(1) {
		s := &b.ring[b.taken.Load()%slots]
		for _, h := range b.told.now() {
			h.tell(maxBehind, func() error { return h.encode(s) })
		}
		for _, c := range s.cells {
			if b.masts != nil {
				b.masts[c.Cell].tell(c)
			}
		}
	}
}

// serve takes callers, who join the audience when they are ready.
func (b *broadcast) serve(l net.Listener, to *audience, ready func(*hearer) error) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				slog.Error("lab: nobody can hear any more", "network", l.Addr(), "err", err)
			}
			return
		}
		h := &hearer{conn: conn, more: make(chan struct{}, 1), dropped: &b.dropped}
		if err := ready(h); err != nil {
			slog.Error("lab: control messages", "err", err)
			conn.Close()
			continue
		}
		to.join(h)
		b.hearers.Add(1)
		go func() {
			h.write()
			conn.Close()
			b.hearers.Add(-1)
			to.leave(h)
		}()
	}
}

// messages readies a hearer for control messages.
func (b *broadcast) messages(h *hearer) (err error) {
	h.encode, err = h.recording(b.prb, b.self)
	return err
}

// truth readies one for the truth.
func (b *broadcast) truth(h *hearer) error {
	h.encode = h.lines(b.users)
	return nil
}

// hearer is who has connected.
type hearer struct {
	conn    net.Conn
	encode  func(*slot) error // appends to buf
	more    chan struct{}
	dropped *atomic.Int64

	mu   sync.Mutex
	buf  bytes.Buffer // guarded by mu, as encode is
	full bool         // it was told more than it reads: it is dropped
}

// recording encodes control messages; the head is written at once, and who it is that
// hears, unless that is 0.
func (h *hearer) recording(prb [cell.MaxCells]uint8, self cell.RNTI) (func(*slot) error, error) {
	w, err := cell.NewWriter(&h.buf, prb)
	if err == nil && self != 0 {
		err = w.Self(self)
	}
	if err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	h.more <- struct{}{}
	return func(s *slot) error {
		for _, f := range s.cells {
			if err := w.Write(f); err != nil {
				return err
			}
		}
		return w.Flush()
	}, nil
}

// lines encodes the truth.
func (h *hearer) lines(users []airUser) func(*slot) error {
	var line []byte
	return func(s *slot) error {
		for u, t := range s.truth {
			line = append(line[:0], `{"number":`...)
			line = strconv.AppendInt(line, s.number, 10)
			line = append(line, `,"user":"`...)
			line = append(line, users[u].name...) // needs no escaping: goodName
			line = append(line, `","rnti":`...)
			line = strconv.AppendUint(line, uint64(users[u].RNTI), 10)
			line = append(line, `,"physical_bps":`...)
			line = strconv.AppendInt(line, int64(perSecond(t.Physical)), 10)
			line = append(line, `,"fair_bps":`...)
			line = strconv.AppendInt(line, int64(perSecond(t.Fair)), 10)
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

// tell adds to what waits for the hearer. Who lets more than most wait is dropped.
func (h *hearer) tell(most int, add func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full {
		return
	}
	if err := add(); err != nil {
		slog.Error("lab: a subframe cannot be told", "err", err)
	}
	if h.buf.Len() > most {
		h.full = true
		h.dropped.Add(1)
		h.conn.Close()
		return
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// write sends what there is until the hearer goes or is dropped.
func (h *hearer) write() {
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
		case <-h.more:
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
