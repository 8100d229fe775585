// SPDX-License-Identifier: Apache-2.0

package air

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/pbe/lte"
)

// listenLive decodes raw from standard input.
func listenLive(t *testing.T, in Input, raw []byte) (heard int, err error) {
	t.Helper()
	in.Source = "-"
	l, err := Open(t.Context(), Config{Inputs: []Input{in}, Stdin: bytes.NewReader(raw)})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Run(t.Context(), func(*Subframe) { heard++ })
	return heard, err
}

// TestLiveNonsense checks that samples in another format, in which cells with zeros are found,
// yield nothing.
func TestLiveNonsense(t *testing.T) {
	const rate = 1_920_000
	raw, piece := encodeSamples(SC16, testSignal(t, 40)), rate/500*CF32.Size()
	c := &carrier{State: State{Format: CF32, Rate: rate}}
	if err := c.startReceiver(); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		for at := 0; at+piece <= len(raw); at += piece {
			before := c.receiver.Counts()
			c.feedSamples(raw[at:][:piece], 0)
			if c.checkTrial(before); c.confirmed || !c.onTrial && len(c.pending) > 0 || len(c.pending) > maxHeld {
				t.Fatalf("%d subframes of no cell", len(c.pending))
			}
		}
	}
	if n := c.receiver.Counts().Found; n == 0 {
		t.Error("nothing was doubted")
	}
}

// TestLiveTrial checks that a cell is confirmed by its second frame, with all of its subframes, and
// that one frame does not suffice.
func TestLiveTrial(t *testing.T) {
	const rate = 1_920_000
	samples := testSignal(t, 45)
	if heard, err := listenLive(t, Input{Format: SC16, Rate: rate},
		encodeSamples(SC16, samples[:45*1920])); heard != 45 || err != nil {
		t.Errorf("%d subframes, %v", heard, err)
	}
	heard, err := listenLive(t, Input{Format: SC16, Rate: rate}, encodeSamples(SC16, samples[2*1920:][:17*1920]))
	if heard != 0 || !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "only once") {
		t.Errorf("a frame: %d subframes, %v", heard, err)
	}
}

// TestTrialOfAnother checks that a cell that replaces a confirmed one must be confirmed too, and
// that a false one is forgotten.
func TestTrialOfAnother(t *testing.T) {
	const rate = 1_920_000
	c := &carrier{State: State{Format: SC16, Rate: rate}}
	if err := c.startReceiver(); err != nil {
		t.Fatal(err)
	}
	good, none := lte.Cell{ID: 77, PRB: 6, Ports: 1, PHICHSixths: 6}, lte.Cell{ID: 3, PRB: 6, Ports: 1, PHICHSixths: 1}
	c.confirmed, c.confirmedCell, c.onTrial = true, good, true
	for i := range 7 {
		of := []lte.Cell{good, none}[i%2]
		c.pending = append(c.pending, &receivedSubframe{Subframe: Subframe{Subframe: &lte.Subframe{Cell: of}}})
	}
	c.checkTrial(c.receiver.Counts()) // no cell is followed any more
	if len(c.pending) != 4 || c.onTrial {
		t.Errorf("%d are left, trial %v", len(c.pending), c.onTrial)
	}
}

// TestPipeWaits checks that no samples of a pipe are dropped, however slow decoding is, except with
// DropLate.
func TestPipeWaits(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		const pieces, rate = 3 * maxQueuedChunks, 1_920_000
		end := atEnd{make(chan struct{})}
		raw := make([]byte, pieces*rate/500*2)
		l, err := Open(t.Context(), Config{Inputs: []Input{{Source: "-", Format: CU8, Rate: rate}}, DropLate: fresh,
			Stdin: io.MultiReader(bytes.NewReader(raw), end)})
		if err != nil {
			t.Fatal(err)
		}
		in := l.newLiveReader(l.carriers[0])
		in.startTime = time.Now().Add(-time.Hour) // very late
		go in.runSourceLoop(t.Context())
		if fresh {
			<-end.reached
		}
		var n, lost int64
		for last := false; !last; {
			x := <-in.out
			n, lost, last = n+int64(len(x.raw)/2), lost+x.lost, x.err != nil
		}
		if n+lost != pieces*rate/500 || (lost > 0) != fresh {
			t.Errorf("fresh %v: %d samples, %d lost", fresh, n, lost)
		}
	}
}

// TestPacedKeepsAll checks that a paced file is late rather than incomplete.
func TestPacedKeepsAll(t *testing.T) {
	l, err := Open(t.Context(), Config{Inputs: []Input{{Source: writeSamples(t, "x.sc16",
		encodeSamples(SC16, testSignal(t, 30)))}}, Paced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if in := l.newLiveReader(l.carriers[0]); !in.paced || !in.lossless {
		t.Errorf("%+v", in)
	}
}
