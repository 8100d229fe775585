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

// live hears what is read from standard input.
func live(t *testing.T, in Input, raw []byte) (heard int, err error) {
	t.Helper()
	in.Source = "-"
	l, err := Open(t.Context(), Config{Inputs: []Input{in}, Stdin: bytes.NewReader(raw)})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Run(t.Context(), func(*Subframe) { heard++ })
	return heard, err
}

// TestLiveNonsense: nothing is handed on of what is in another format, in which frames
// with zeros are found.
func TestLiveNonsense(t *testing.T) {
	const rate = 1_920_000
	raw, piece := as(SC16, signal(t, 40)), rate/500*CF32.Size()
	c := &carrier{State: State{Format: CF32, Rate: rate}}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		for at := 0; at+piece <= len(raw); at += piece {
			before := c.receiver.Counts()
			c.feed(raw[at:][:piece], 0)
			if c.doubt(before); c.sure || !c.trial && len(c.fresh) > 0 || len(c.fresh) > maxHeld {
				t.Fatalf("%d subframes of no cell", len(c.fresh))
			}
		}
	}
	if n := c.receiver.Counts().Found; n == 0 {
		t.Error("nothing was doubted")
	}
}

// TestLiveTrial: a cell is believed by the second frame, and then all of it is told;
// one frame is none.
func TestLiveTrial(t *testing.T) {
	const rate = 1_920_000
	samples := signal(t, 45)
	if heard, err := live(t, Input{Format: SC16, Rate: rate}, as(SC16, samples[:45*1920])); heard != 45 || err != nil {
		t.Errorf("%d subframes, %v", heard, err)
	}
	heard, err := live(t, Input{Format: SC16, Rate: rate}, as(SC16, samples[2*1920:][:17*1920]))
	if heard != 0 || !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "once only") {
		t.Errorf("a frame: %d subframes, %v", heard, err)
	}
}

// TestTrialOfAnother: a cell that takes the place of a believed one must be believed
// anew, and what was none is forgotten.
func TestTrialOfAnother(t *testing.T) {
	const rate = 1_920_000
	c := &carrier{State: State{Format: SC16, Rate: rate}}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	good, none := lte.Cell{ID: 77, PRB: 6, Ports: 1, Sixths: 6}, lte.Cell{ID: 3, PRB: 6, Ports: 1, Sixths: 1}
	c.sure, c.cell, c.trial = true, good, true
	for i := range 7 {
		of := []lte.Cell{good, none}[i%2]
		c.fresh = append(c.fresh, &heard{Subframe: Subframe{Subframe: &lte.Subframe{Cell: of}}})
	}
	c.doubt(c.receiver.Counts()) // none is followed any more
	if len(c.fresh) != 4 || c.trial {
		t.Errorf("%d are left, trial %v", len(c.fresh), c.trial)
	}
}

// TestPipeWaits: nothing of a pipe is dropped, however long it takes to decode; with
// Fresh as of sockets.
func TestPipeWaits(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		const pieces, rate = 3 * waiting, 1_920_000
		end := atEnd{make(chan struct{})}
		raw := make([]byte, pieces*rate/500*2)
		l, err := Open(t.Context(), Config{Inputs: []Input{{Source: "-", Format: CU8, Rate: rate}}, Fresh: fresh, Stdin: io.MultiReader(bytes.NewReader(raw), end)})
		if err != nil {
			t.Fatal(err)
		}
		in := l.inlet(l.carriers[0])
		in.begin = time.Now().Add(-time.Hour) // long late
		go in.run(t.Context())
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

// TestPacedKeepsAll: a file at the rate of its samples is late rather than cut.
func TestPacedKeepsAll(t *testing.T) {
	l, err := Open(t.Context(), Config{Inputs: []Input{{Source: write(t, "x.sc16", as(SC16, signal(t, 30)))}}, Paced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if in := l.inlet(l.carriers[0]); !in.paced || !in.patient {
		t.Errorf("%+v", in)
	}
}
