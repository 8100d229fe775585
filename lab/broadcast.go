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

	ring           []slot
	written, taken atomic.Uint64 // slots, since the beginning
	more           chan struct{}

	hearers atomic.Int32 // connected
	dropped atomic.Int64 // hearers, because they did not read
	missed  atomic.Int64 // subframes, because run was late

	mu  sync.Mutex
	all []*hearer // guarded by mu
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

// pass gives hearers what there is.
func (b *broadcast) pass() {
	for ; b.taken.Load() < b.written.Load(); b.taken.Add(1) {
		s := &b.ring[b.taken.Load()%slots]
		b.mu.Lock()
		all := b.all
		b.mu.Unlock()
		for _, h := range all {
			if !h.tell(s) {
				b.dropped.Add(1)
				h.conn.Close()
			}
		}
	}
}

// serve takes callers, who hear the truth or the messages.
func (b *broadcast) serve(l net.Listener, truth bool) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				slog.Error("lab: nobody can hear any more", "network", l.Addr(), "err", err)
			}
			return
		}
		h := &hearer{conn: conn, more: make(chan struct{}, 1)}
		if truth {
			h.encode = h.lines(b.users)
		} else if h.encode, err = h.recording(b.prb); err != nil {
			slog.Error("lab: control messages", "err", err)
			conn.Close()
			continue
		}
		b.mu.Lock()
		b.all = append(b.all[:len(b.all):len(b.all)], h) // pass may have the old one
		b.mu.Unlock()
		b.hearers.Add(1)
		go func() {
			h.write()
			conn.Close()
			b.hearers.Add(-1)
			b.mu.Lock()
			defer b.mu.Unlock()
			var rest []*hearer
			for _, o := range b.all {
				if o != h {
					rest = append(rest, o)
				}
			}
			b.all = rest
		}()
	}
}

// hearer is who has connected.
type hearer struct {
	conn   net.Conn
	encode func(*slot) error // appends to buf
	more   chan struct{}

	mu   sync.Mutex
	buf  bytes.Buffer // guarded by mu, as encode is
	full bool         // it was told more than it reads: it is dropped
}

// recording encodes control messages; the head is written at once.
func (h *hearer) recording(prb [cell.MaxCells]uint8) (func(*slot) error, error) {
	w, err := cell.NewWriter(&h.buf, prb)
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

// tell adds a subframe to what waits for the hearer. False says that it has just
// become too much.
func (h *hearer) tell(s *slot) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full {
		return true
	}
	if err := h.encode(s); err != nil {
		slog.Error("lab: a subframe cannot be told", "number", s.number, "err", err)
	}
	if h.buf.Len() > maxBehind {
		h.full = true
		return false
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
	return true
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
