// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// newReassembly returns a reassembly with that window, and what its memory is taken from.
func newReassembly(window unit.Bytes) (*reassembly, *memoryBudget) {
	m := &memoryBudget{}
	return &reassembly{pages: pages{pool: &pagePool{memory: m}}, memory: m, window: window, limit: wire.DataSeq(window)}, m
}

// TestReassembly holds a reassembly against a model, with parts that come in any order, again
// and overlapping: each byte is handed over once, in its place, and memory is given back.
func TestReassembly(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 6))
		text := make([]byte, 1+r.IntN(200_000))
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		a, memory := newReassembly(unit.Bytes(20_000 + r.IntN(100_000)))
		here, read := make([]bool, len(text)), 0
		for step := 0; !a.isFullyConsumed(); step++ {
			if step == 100_000 {
				t.Fatalf("seed %d: %d of %d bytes are read, and it goes on", seed, read, len(text))
			}
			switch r.IntN(8) {
			case 0:
				if r.IntN(10) == 0 && a.setFinalSize(wire.DataSeq(len(text))) != nil {
					t.Fatal("the right FIN is refused")
				}
			case 1:
				if a.isWindowDue() {
					if before := a.limit; a.setWindowSize(a.nextWindow(unit.Bytes(r.IntN(200_000)))) != (a.limit > before) {
						t.Fatalf("seed %d: the limit went from %d to %d", seed, before, a.limit)
					}
				}
			case 2, 3:
				n := r.IntN(a.readableBytes() + 1)
				var got []byte
				a.eachReadable(n, func(b []byte) { got = append(got, b...) })
				if !bytes.Equal(got, text[read:read+n]) {
					t.Fatalf("seed %d: wrong bytes at %d", seed, read)
				}
				a.consumeBytes(n)
				read += n
			default:
				from := max(0, min(int(a.nextExpected)+r.IntN(40_000)-10_000, len(text)-1))
				to := min(from+r.IntN(20_000), len(text))
				if a.checkLimit(wire.DataSeq(to)) != nil {
					if to <= int(a.limit) {
						t.Fatalf("seed %d: bytes up to %d are refused", seed, to)
					}
					break
				}
				want := 0
				for i := from; i < to; i++ {
					if !here[i] {
						here[i] = true
						want++
					}
				}
				before := a.nextExpected
				added, delivered, ok := a.insertBytes(wire.DataSeq(from), text[from:to])
				if !ok || added != want || !a.chargeBitmaps() {
					t.Fatalf("seed %d: %d bytes were new, want %d; %v", seed, added, want, ok)
				}
				if delivered != (seqSpan{}) && (delivered.From != before || delivered.To != a.nextExpected) ||
					delivered == (seqSpan{}) && before != a.nextExpected {
					t.Fatalf("seed %d: from %d, %v became readable up to %d", seed, before, delivered, a.nextExpected)
				}
			}
			for i := int(a.nextExpected); i < len(here) && here[i]; i++ {
				t.Fatalf("seed %d: byte %d is there and not readable", seed, i)
			}
		}
		if read != len(text) || memory.taken != 0 {
			t.Errorf("seed %d: %d of %d bytes were read; %v of memory is taken", seed, read, len(text), memory.taken)
		}
	}
}

func TestReassemblyRefuses(t *testing.T) {
	a, memory := newReassembly(1000)
	if err := a.checkLimit(1001); !errors.Is(err, wire.ErrMalformed) || a.checkLimit(1000) != nil {
		t.Errorf("beyond the window: %v", err)
	}
	a.insertBytes(500, make([]byte, 100))
	a.chargeBitmaps()
	if err := a.setFinalSize(599); !errors.Is(err, wire.ErrMalformed) || a.setFinalSize(600) != nil ||
		a.setFinalSize(1) != nil {
		t.Errorf("an end before bytes received: %v", err)
	}
	if a.checkLimit(601) == nil || a.checkLimit(600) != nil || a.expectsMore() {
		t.Error("the end is not kept to")
	}
	if a.abandonBuffers(); memory.taken != 0 || a.readableBytes() != 0 {
		t.Errorf("%v is taken, %d readable", memory.taken, a.readableBytes())
	}
	memory.taken = maxMemory
	if _, _, ok := a.insertBytes(0, []byte{1}); ok {
		t.Error("bytes are taken without memory")
	}
}

// TestBufferLimits: what streams may take shrinks as all together hold more.
func TestBufferLimits(t *testing.T) {
	newLimits := func() *bufferLimits {
		return &bufferLimits{memory: &memoryBudget{}, metaBuffer: 4 * unit.MB, maxBuffered: 64 * unit.MB,
			firstWindow: wire.InitialDownWindow}
	}
	for _, c := range []struct {
		name     string
		held     unit.Bytes
		short    bool
		unacked  unit.Bytes
		limit    wire.DataSeq
		want     unit.Bytes
		notables bool
	}{
		{"empty", 0, false, 0, 1 << 30, 4 * unit.MB, true},
		{"the meta buffer is full", 0, false, 4 * unit.MB, 1 << 30, 0, false},
		{"much is held, little of it here", 64 * unit.MB, false, 1000, 1 << 30, minMetaBuffer - 1000, true},
		{"much is held here", 64 * unit.MB, false, minMetaBuffer, 1 << 30, 0, false},
		{"a quarter is held, and the window is full", 16 * unit.MB, false, 1000, 1000, blockedAllowance, false},
		{"less than that", 16*unit.MB - 1, false, 1000, 1000, 4*unit.MB - 1000, true},
		{"short of memory", 0, true, 0, 1 << 30, pageSize, true},
		{"and a page is held", 0, true, pageSize, 1 << 30, 0, false},
	} {
		l := newLimits()
		l.heldBytes = c.held
		l.memory.shared = &budget{limit: unit.GB, short: c.short}
		s := &sendBuffer{end: wire.DataSeq(c.unacked), limit: c.limit}
		s.unsent.Add(0, s.end)
		room := l.sendBufferRoom(s)
		if room != c.want || l.isNotableRoom(room, s) != c.notables {
			t.Errorf("%s: room for %v, want %v; notable %v", c.name, room, c.want, l.isNotableRoom(room, s))
		}
	}
	// Of n streams that want as much as they can get, each gets 1/(n+2).
	for n := 1; n <= 20; n++ {
		l := newLimits()
		windows := make([]unit.Bytes, n)
		for i := range windows {
			windows[i] = l.firstWindow
		}
		for range 200 {
			for i, w := range windows {
				windows[i] = l.maxWindowOf(w)
				l.countWindowChange(w, windows[i])
			}
		}
		for _, w := range windows {
			if want := l.maxBuffered / unit.Bytes(n+2); abs(w-l.firstWindow-want) > want/20 {
				t.Errorf("%d streams: a window of %v beyond the first, want %v", n, w-l.firstWindow, want)
			}
		}
		if l.grownWindows > l.maxBuffered {
			t.Errorf("%d streams: windows have grown by %v", n, l.grownWindows)
		}
	}
}
