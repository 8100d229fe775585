// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestSlowReaders: however many apps do not read, what waits for them is within
// the bound, one that reads gets its bytes at the links' pace, and the others
// get theirs when they read.
func TestSlowReaders(t *testing.T) {
	const streams, memory = 300, 8 * unit.MB
	n := newSim(t, "auto", 0.2)
	n.limit = n.now.Add(time.Hour)
	n.addTriangle(50*unit.Mbps, 50*unit.Mbps, 50*unit.Mbps)
	for _, b := range n.ends {
		b.buffers.maxBuffered = memory
	}
	const pause = 60 * time.Second
	var slow []*transfer
	for range streams {
		tr := &transfer{size: int(unit.MB)}
		tr.talk[0].Pause = pause
		slow = append(slow, tr)
	}
	all := n.carry(slow)
	quick := &transfer{size: int(4 * unit.MB)}
	var began time.Time
	n.after(pause/2, func() { began = n.now; n.carry([]*transfer{quick}) })
	var most unit.Bytes
	n.onEnd[0] = func(b *Bond) {
		var wait unit.Bytes
		for _, s := range b.streams.all {
			wait += unit.Bytes(s.reassembly.limit - s.reassembly.readOffset) // all that may come
		}
		most = max(most, wait)
	}
	n.run(func() bool { return all() && !quick.done.IsZero() })
	bound := memory + (streams+1)*wire.InitialDownWindow
	took := quick.done.Sub(began)
	t.Logf("%d streams were granted %v, bound %v; one that reads takes %v", streams, most, bound, took)
	if most > bound || most < bound/2 {
		t.Errorf("%v were granted, bound %v", most, bound)
	}
	if fluid := (100 * unit.Mbps).Time(unit.Bytes(quick.size)); took > 4*fluid {
		t.Errorf("one that reads takes %v, alone at least %v", took, fluid)
	}
}

// TestWindowsShare: streams that all read share the memory for windows, and
// give back what they got while they were few.
func TestWindowsShare(t *testing.T) {
	b := New(Config{OpensStreams: true, MaxBuffered: 12 * unit.MB})
	var list []*Stream
	read := func(s *Stream, size unit.Bytes) { // as if it had come and were read
		for ; size > 0; size -= unit.KB {
			if s.reassembly.nextExpected += wire.DataSeq(unit.KB); s.reassembly.nextExpected > s.reassembly.limit {
				t.Fatalf("stream %d may not send on", s.id)
			}
			s.Consume(int(unit.KB))
		}
	}
	for range 10 {
		s, err := b.OpenStream("x:1")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
		for range 40 {
			for _, s := range list {
				read(s, min(s.reassembly.window, 512*unit.KB))
			}
		}
		want := wire.InitialDownWindow + 12*unit.MB/unit.Bytes(len(list)+2)
		for _, s := range list {
			if s.reassembly.window < want*9/10 || s.reassembly.window > want*11/10 {
				t.Errorf("of %d streams, %d has a window of %v, want about %v", len(list), s.id, s.reassembly.window, want)
			}
			if granted := unit.Bytes(s.reassembly.limit - s.reassembly.readOffset); granted > s.reassembly.window ||
				granted < s.reassembly.window*3/4 {
				t.Errorf("stream %d may send %v, of a window of %v", s.id, granted, s.reassembly.window)
			}
		}
	}
}

// TestWindowGrowsBeyondGap checks that a window grows when bytes beyond a gap reach a quarter of it, that
// it stays within the limits of memory, and that it does not grow for an app that does not read, or
// after a FIN.
func TestWindowGrowsBeyondGap(t *testing.T) {
	now := time.Unix(0, 0)
	open := func() *Stream {
		s, err := New(Config{OpensStreams: true, MaxBuffered: 12 * unit.MB}).OpenStream("x:1")
		if err != nil {
			t.Fatal(err)
		}
		s.reassembly.insertBytes(0, make([]byte, 1000))
		s.reassembly.consumeBytes(1000)
		return s
	}
	receive := func(s *Stream, at wire.DataSeq) {
		if err := s.receiveStreamData(&subflow{}, wire.Data{Stream: s.id, Seq: at, Bytes: make([]byte, 1000)},
			now); err != nil {
			t.Fatal(err)
		}
	}
	s := open()
	before := s.reassembly.limit
	quarter := 1000 + before/4
	if receive(s, quarter-1001); s.reassembly.limit != before {
		t.Errorf("less than a quarter of the window lies beyond the gap, and it grows to %d", s.reassembly.limit)
	}
	if receive(s, quarter-1000); s.reassembly.limit != 1000+2*before {
		t.Errorf("a quarter of the window lies beyond the gap: its limit is %d, want %d", s.reassembly.limit, 1000+2*before)
	}
	for range 20 {
		receive(s, s.reassembly.limit-1000)
	}
	if most := wire.InitialDownWindow + 12*unit.MB/3; s.reassembly.window > most || s.reassembly.window < most*9/10 {
		t.Errorf("the window is %v, want about %v", s.reassembly.window, most)
	}
	s, err := New(Config{OpensStreams: true, MaxBuffered: 12 * unit.MB}).OpenStream("x:1")
	if err != nil {
		t.Fatal(err)
	}
	if receive(s, before-2000); s.reassembly.limit > before {
		t.Errorf("the app has read nothing, and the limit is %d, want %d", s.reassembly.limit, before)
	}
	s = open()
	s.reassembly.insertBytes(1000, make([]byte, 1000))
	if receive(s, before-1000); s.reassembly.limit != before {
		t.Errorf("the app has not read all, and the limit is %d, want %d", s.reassembly.limit, before)
	}
	s = open()
	if err := s.reassembly.setFinalSize(before); err != nil {
		t.Fatal(err)
	}
	if receive(s, before-1000); s.reassembly.limit != before {
		t.Errorf("after FIN the limit is %d, want %d", s.reassembly.limit, before)
	}
}
