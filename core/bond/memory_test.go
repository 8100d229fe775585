// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// budget is a Memory of so many bytes.
type budget struct {
	limit, used unit.Bytes
	short       bool
}

func (m *budget) Take(n unit.Bytes) bool {
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}
func (m *budget) Release(n unit.Bytes) { m.used -= n }
func (m *budget) IsShort() bool        { return m.short }

// receiveByte has a byte of a stream arrive.
func receiveByte(t *testing.T, b *Bond, id wire.StreamID, at wire.DataSeq) {
	t.Helper()
	f := wire.Data{Stream: id, Seq: at, Bytes: []byte("x")}
	if err := b.ReceiveFrame(1, wire.TypeData, f.AppendPayload(nil), start); err != nil {
		t.Fatal(err)
	}
}

// TestGapsAreBounded: every other byte, backwards: what is held depends on the pages, not on
// the gaps. All is there when the gaps are filled.
func TestGapsAreBounded(t *testing.T) {
	m := &budget{limit: unit.GB}
	b := New(Config{Memory: m})
	b.AddSubflow(1, false, start)
	const size = wire.DataSeq(wire.InitialWindow)
	for at := size - 1; at < size; at -= 2 {
		receiveByte(t, b, 1, at)
	}
	s := b.streams.all[1]
	if bound := unit.Bytes(b.pool.inUse) * (pageSize + bitmapCost); s.err != nil || m.used != bound ||
		m.used != b.MemoryTaken() || m.used > unit.Bytes(size)*9/8 {
		t.Errorf("%v are held, want %v; %v", m.used, bound, s.err)
	}
	if n := s.reassembly.arrived.count; n != uint64(size)/2 {
		t.Errorf("%d bytes have arrived", n)
	}
	for at := wire.DataSeq(0); at < size; at += 2 {
		receiveByte(t, b, 1, at)
	}
	if s.Readable() != int(size) || m.used != unit.Bytes(size) {
		t.Errorf("%d bytes are there in order, %v are held", s.Readable(), m.used)
	}
}

// TestWithoutMemory: a stream that receives more than there is memory for is reset, what it had is given back, and
// others keep theirs. A stream takes no more to send than there is memory for.
func TestWithoutMemory(t *testing.T) {
	m := &budget{limit: 10 * pageSize}
	b := New(Config{Memory: m})
	b.AddSubflow(1, false, start)
	for page := range wire.DataSeq(5) {
		receiveByte(t, b, 1, page*pageSize+1)
	}
	for page := range wire.DataSeq(8) {
		receiveByte(t, b, 2, page*pageSize+1)
	}
	one, two := b.streams.all[1], b.streams.all[2]
	if two != nil || one == nil || one.err != nil {
		t.Errorf("stream 1: %v, stream 2: %v", one, two)
	}
	if m.used < 5*pageSize || m.used > 6*pageSize {
		t.Errorf("%v are held", m.used)
	}
	if n := one.Write(make([]byte, 6*pageSize)); n != 4*pageSize || one.err != nil || one.Room() == 0 {
		t.Errorf("%d bytes are taken for sending: %v", n, one.err)
	}
	if n := one.Write(make([]byte, 1)); n != 0 || one.err != nil {
		t.Errorf("%d bytes are taken without memory: %v", n, one.err)
	}
	addr := wire.Addr{Name: "far", Port: 7}
	dropped := func() int {
		f := wire.Datagram{Flow: 1, Number: uint64(m.used), Addr: addr, Bytes: make([]byte, 1000)}
		if err := b.ReceiveFrame(1, wire.TypeDatagram, f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
		return b.Stats().DatagramsDropped
	}
	for n := 0; dropped() == 0; n++ {
		if n > 1000 {
			t.Fatal("datagrams need no memory")
		}
	}
	b.ResetAll(wire.CodeClosed, "", start)
	for f := b.AcceptFlow(); f != nil; f = b.AcceptFlow() {
		f.Discard()
	}
	b.ReleaseMemory()
	if m.used != 0 {
		t.Errorf("%v are left", m.used)
	}
}

// TestShortOfMemory: an end that is short of memory takes a page of each stream at a time,
// and grants no more than the first window.
func TestShortOfMemory(t *testing.T) {
	m := &budget{limit: unit.GB, short: true}
	b := New(Config{Memory: m})
	b.AddSubflow(1, false, start)
	receiveByte(t, b, 1, 0)
	s := b.streams.all[1]
	if n := s.Write(make([]byte, 100_000)); n != pageSize || s.hasNotableRoom() {
		t.Errorf("%d bytes are taken", n)
	}
	s.send.firstUnacked = s.send.end // all has arrived
	if !s.hasNotableRoom() {
		t.Error("the writer waits for ever")
	}
	if got := b.buffers.maxWindowOf(s.reassembly.window); got != wire.InitialWindow {
		t.Errorf("the window may be %v", got)
	}
	if m.short = false; b.buffers.maxWindowOf(s.reassembly.window) <= wire.InitialWindow {
		t.Error("the window may not grow with memory")
	}
}

// TestReleasedPagesAreFree: a stream keeps no pointer to pages and marks that it has given
// up, while it has others.
func TestReleasedPagesAreFree(t *testing.T) {
	m := &budget{limit: unit.GB}
	b := New(Config{Memory: m})
	b.AddSubflow(1, false, start)
	const pages = 4
	for page := range wire.DataSeq(pages + 1) {
		receiveByte(t, b, 1, page*pageSize+1)
	}
	for at := wire.DataSeq(0); at < pages*pageSize; at++ {
		if at%pageSize != 1 {
			receiveByte(t, b, 1, at)
		}
	}
	s := b.streams.all[1]
	if n, err := s.Read(make([]byte, pages*pageSize)); n != pages*pageSize || err != nil {
		t.Fatalf("%d bytes are read", n)
	}
	for _, pg := range s.reassembly.pages.list[len(s.reassembly.pages.list):cap(s.reassembly.pages.list)] {
		if pg != nil {
			t.Error("a page that was read is still held")
		}
	}
	for _, marks := range s.reassembly.arrived.list[len(s.reassembly.arrived.list):cap(s.reassembly.arrived.list)] {
		if marks != nil {
			t.Error("marks of bytes in order are still held")
		}
	}
}
