// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/lab/lte"
	"mpbond/lab/shaper"
	"mpbond/pbe/cell"
)

// serveBroadcast returns a served broadcast. send passes on subframes with these numbers.
func serveBroadcast(t *testing.T) (b *broadcast, send func(from, to int64), messages, truth string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ls") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	users := []airUser{{name: "l", UserConfig: lte.UserConfig{RNTI: 0x4601}},
		{name: "x", UserConfig: lte.UserConfig{RNTI: 0xE000}}}
	s := &baseStation{name: "t", broadcast: newBroadcast(lte.Config{Cells: []lte.CellConfig{{PRB: 50}, {PRB: 25}}},
		users)}
	s.broadcast.ownRNTI = 0x4601
	if err := s.openSockets(dir); err != nil {
		t.Fatal(err)
	}
	send = func(from, to int64) {
		for n := from; n < to; n++ {
			if o := s.broadcast.beginSlot(n); o != nil {
				for c, prb := range []uint8{50, 25} {
					g := []cell.Grant{{RNTI: 0x4601, Format: cell.Format1, PRB: prb, N: 1,
						Blocks: [2]cell.Block{{MCS: 9, Size: cell.Bits(n % 1000)}}}}
					o.copyCellSubframe(cell.Subframe{Cell: cell.ID(c), Number: n, PRB: prb, Grants: g})
				}
				o.truth = append(o.truth, lte.Truth{Physical: float64(n), Fair: 2, Waiting: 3, Delivered: 4,
					Carriers: 1}, lte.Truth{})
				s.broadcast.commitSlot()
			}
		}
	}
	return s.broadcast, send, s.messages, s.truth
}

// connectListener connects to a socket and waits until the broadcast has accepted.
func connectListener(t *testing.T, b *broadcast, path string) net.Conn {
	t.Helper()
	before := b.listenerCount.Load()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	waittest.Until(t, "a listener", func() bool { return b.listenerCount.Load() == before+1 })
	return c
}

// Each listener gets everything from its connection on, in order, as a recording or as ground
// truth. Nothing is kept without listeners.
func TestBroadcast(t *testing.T) {
	b, send, messages, truth := serveBroadcast(t)
	send(0, 100)
	if b.written.Load() != 0 {
		t.Fatal("subframes were kept for nobody")
	}
	first := connectListener(t, b, messages)
	send(100, 600)
	waittest.Until(t, "room for more", func() bool { return b.taken.Load() == b.written.Load() })
	second, third := connectListener(t, b, messages), connectListener(t, b, truth)
	send(600, 1100)
	for _, c := range []struct {
		conn net.Conn
		from int64
	}{{first, 100}, {second, 600}} {
		r, err := cell.NewReader(c.conn)
		if err != nil {
			t.Fatal(err)
		}
		if r.PRB != [cell.MaxCells]uint8{50, 25} {
			t.Errorf("cells of %v blocks", r.PRB)
		}
		for n := c.from; n < 1100; n++ {
			for id := range cell.ID(2) {
				s, err := r.Read()
				if err != nil || r.Self != 0x4601 || s.Number != n || s.Cell != id || len(s.Grants) != 1 ||
					s.Grants[0].Blocks[0].Size != cell.Bits(n%1000) {
					t.Fatalf("subframe %d of cell %d: %+v, %v", n, id, s, err)
				}
			}
		}
	}
	lines := json.NewDecoder(third)
	for n := int64(600); n < 1100; n++ {
		var l, x TruthLine
		if err := errors.Join(lines.Decode(&l), lines.Decode(&x)); err != nil {
			t.Fatal(err)
		}
		if want := (TruthLine{Number: n, User: "l", RNTI: 0x4601, Physical: unit.Rate(1000 * n), Fair: 2000, Waiting: 3,
			Delivered: 4, Carriers: 1}); l != want || x.User != "x" {
			t.Fatalf("%+v, %+v, want %+v", l, x, want)
		}
	}
	if b.missedSubframes.Load() != 0 || b.droppedListeners.Load() != 0 {
		t.Error("some were missed or dropped")
	}
	for _, c := range []net.Conn{first, second, third} {
		c.Close()
	}
	waittest.Until(t, "the end of a listener", func() bool { return b.listenerCount.Load() == 0 })
}

// A listener that does not read is dropped and does not delay others.
func TestBroadcastDropsSlowListener(t *testing.T) {
	b, send, messages, truth := serveBroadcast(t)
	slow, good := connectListener(t, b, truth), connectListener(t, b, messages)
	r, err := cell.NewReader(bufio.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for ; b.droppedListeners.Load() == 0; n++ {
		if n == 1_000_000 {
			t.Fatal("nobody is dropped")
		}
		send(n, n+1)
		for range 2 {
			if s, err := r.Read(); err != nil || s.Number != n {
				t.Fatalf("subframe %d: %+v, %v", n, s, err)
			}
		}
	}
	if _, err := io.Copy(io.Discard, slow); err != nil {
		t.Error(err)
	}
	waittest.Until(t, "the end of a listener", func() bool { return b.listenerCount.Load() == 1 })
}

// Subframes without a free slot are counted as missed, and the emulator's thread continues.
func TestBroadcastMisses(t *testing.T) {
	b := newBroadcast(lte.Config{Cells: []lte.CellConfig{{PRB: 50}}}, nil)
	b.listenerCount.Store(1)
	for n := range int64(ringSlots + 10) {
		if s := b.beginSlot(n); (s == nil) != (n >= ringSlots) {
			t.Fatalf("subframe %d: %v", n, s)
		} else if s != nil {
			b.commitSlot()
		}
	}
	if b.missedSubframes.Load() != 10 {
		t.Errorf("%d missed", b.missedSubframes.Load())
	}
}

// newBusyStation returns a base station of 10 MHz with a link that receives more than it carries,
// and a further user. It writes packets to /dev/null. step runs the next subframe.
func newBusyStation(t testing.TB, hears bool) (s *baseStation, step func()) {
	t.Helper()
	top, err := ParseTopology(
		[]byte("[node.a]\n[node.b]\n[link.l]\nends=[\"a\",\"b\"]\ndelay=\"10ms\"\nlte={network=\"t\", "+
			"rnti=0x4601, signal=\"18dB\", error_rate=2e-6}\n"+
			"[lte.t]\ncarriers=[{prb=50, control=0.4}]\n[lte.t.user.x]\nsignal=\"18dB\"\nrate=\"20Mbit/s\"\n"), ".")
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	l := &emulatedLink{name: "l", tunFDs: [2]int{int(null.Fd()), int(null.Fd())}}
	for dir := range l.lines {
		p, err := top.Link["l"].Program(Direction(dir))
		if err != nil {
			t.Fatal(err)
		}
		l.lines[dir] = shaper.New(p, 1)
	}
	e := &emulator{links: []*emulatedLink{l}, base: time.Now()}
	if s, err = newBaseStation("t", top.LTE["t"], top, e.links); err != nil {
		t.Fatal(err)
	}
	if hears {
		s.broadcast.listenerCount.Store(1)
	}
	now := time.Duration(0)
	return s, func() {
		for range 5 { // 60 Mbit/s, twice what the cell carries
			b := e.takeBuffer()
			if !l.lines[Downlink].Enqueue(now, shaper.Packet{Size: 1500, Data: b[:1500]}) {
				e.releaseBuffer(b)
			}
		}
		now += subframeLength
		s.runSubframes(e, now)
		s.broadcast.taken.Store(s.broadcast.written.Load()) // as if it was delivered
	}
}

// The emulator's thread must not wait for the garbage collector.
func TestStationTakesNoMemory(t *testing.T) {
	s, step := newBusyStation(t, true)
	for range 5000 {
		step()
	}
	if m := s.members[0]; m.delivered.Packets < 8000 || m.dropped.Packets == 0 {
		t.Errorf("%+v", m)
	}
	if got := testing.AllocsPerRun(3000, step); got > 0.05 {
		t.Errorf("%v allocations for each subframe", got)
	}
}

// BenchmarkStation measures one subframe in the emulator's thread, with the packets of a full link,
// with and without listeners.
func BenchmarkStation(b *testing.B) {
	for name, hears := range map[string]bool{"heard": true, "unheard": false} {
		b.Run(name, func(b *testing.B) {
			_, step := newBusyStation(b, hears)
			for b.Loop() {
				step()
			}
		})
	}
}
