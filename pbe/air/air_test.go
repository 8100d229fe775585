// SPDX-License-Identifier: Apache-2.0

package air

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

const shared = "../../../shared/data/lte/"

// vectorFile returns a recording with truth; it skips the test if there is none.
func vectorFile(t *testing.T, name string) string {
	t.Helper()
	if _, err := os.Stat(shared + name); err != nil {
		t.Skip("the given recordings are not here:", err)
	}
	return shared + name
}

// truth returns users and PRBs of the messages of a vector, by subframe number.
func truth(t *testing.T, name string) map[int64][]string {
	f, err := os.Open(vectorFile(t, name+".dci.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64][]string{}
	for _, r := range rows[1:] {
		var tti int64
		fmt.Sscan(r[1], &tti)
		out[10240+tti] = append(out[10240+tti], r[7]+" "+r[9]+" "+r[16])
	}
	for _, s := range out {
		slices.Sort(s)
	}
	return out
}

// TestTogether checks that two carriers of one site, with detected rates, yield common rows of
// their users.
func TestTogether(t *testing.T) {
	names := []string{"v17_ca_pcell_10M", "v18_ca_scell_5M"}
	truths := []map[int64][]string{truth(t, names[0]), truth(t, names[1])}
	fusion := cell.NewFusion(0, 1)
	rows := 0
	row := func(r *cell.Row) {
		rows++
		for c := range names {
			var got []string
			for _, g := range r.Cells[c].Grants {
				got = append(got, fmt.Sprintf("%d %v %d", g.RNTI, g.Format, g.PRB))
			}
			slices.Sort(got)
			if !r.Received[c] || r.Cells[c].PRB != [...]uint8{50, 25}[c] || !slices.Equal(got, truths[c][r.Number]) {
				t.Errorf("row %d, cell %d: %v, want %v", r.Number, c, got, truths[c][r.Number])
			}
		}
	}
	const subframes = 13
	var inputs []Input
	for i, name := range names { // the beginning of each suffices
		raw, err := os.ReadFile(vectorFile(t, name+".cf32"))
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, Input{Source: writeSamples(t, name+".cf32", raw[:subframes*8*[]int{15_360, 7_680}[i]])})
	}
	l, err := Open(t.Context(), Config{Inputs: inputs})
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	err = l.Run(t.Context(), func(s *Subframe) {
		if s.Number < last {
			t.Errorf("%d after %d", s.Number, last)
		}
		last = s.Number
		fusion.Add(s.Message(nil), row)
	})
	fusion.Flush(row)
	if err != nil || rows != subframes {
		t.Error(err, rows)
	}
	for i, s := range l.State() {
		if s.Rate != []int{15_360_000, 7_680_000}[i] || !s.RateDetected || s.Format != CF32 || s.IsLive ||
			!s.HasCell || s.Cell.ID != []int{150, 301}[i] || s.Subframes != subframes ||
			s.Messages == 0 || s.Samples != int64(s.Rate/1000*subframes) || s.Lost+s.Gaps != 0 || s.Resyncs != 0 ||
			s.SNR < 20 || s.Clipped > clippingWarning || s.ExtraBytes != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// testSignal returns n subframes of a cell of 1.4 MHz, with two messages in each.
func testSignal(t *testing.T, n int) (out []complex64) {
	t.Helper()
	tx, err := lte.NewTransmitter(lte.Cell{ID: 77, PRB: 6, Ports: 1, PHICHSixths: 6}, 1_920_000,
		lte.Channel{SNR: 25, Offset: 700}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(n) {
		var grants []cell.Grant
		for who := range 2 {
			grants = append(grants, cell.Grant{RNTI: cell.RNTI(500 + 1000*who), Format: cell.Format1, PRB: 2,
				HARQ: uint8(i % 8), N: 1, Blocks: [2]cell.Block{{MCS: 15, NDI: i/8%2 == 0, Size: 552}}})
		}
		out = append(out, tx.SendGrants(10230+i, grants)...)
	}
	return out
}

// encodeSamples encodes samples in a format.
func encodeSamples(f Format, samples []complex64) (out []byte) {
	for _, s := range samples {
		for _, v := range []float32{real(s), imag(s)} {
			switch f {
			case CF32:
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
			case SC16:
				out = binary.LittleEndian.AppendUint16(out, uint16(int16(v*4000)))
			case CU8:
				out = append(out, byte(min(max(v*40+128, 0), 255)))
			case SC8:
				out = append(out, byte(int8(min(max(v*40, -128), 127))))
			}
		}
	}
	return out
}

// writeSamples writes a file and returns its path.
func writeSamples(t *testing.T, name string, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// heardIn collects the messages of inputs by number and cell.
func heardIn(t *testing.T, cfg Config) map[string]int {
	t.Helper()
	got := map[string]int{}
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), func(s *Subframe) {
		for _, d := range s.DCIs {
			got[fmt.Sprint(s.Cell, s.Number, d.RNTI, d.Format, d.CCE, d.Level)]++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestSources checks that files, standard input, sockets and paced files, in all formats, yield the
// same messages.
func TestSources(t *testing.T) {
	samples := testSignal(t, 30)
	raw := encodeSamples(CF32, samples)
	name := writeSamples(t, "x.cf32", raw)
	const rate = 1_920_000
	want := heardIn(t, Config{Inputs: []Input{{Source: name}}})
	if len(want) < 30 {
		t.Errorf("%d messages", len(want))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			c.Write(raw)
			c.Close()
		}
	}()
	for _, c := range []Config{
		{Inputs: []Input{{Source: "-", Format: CF32, Rate: rate}}, Stdin: bytes.NewReader(raw)},
		{Inputs: []Input{{Source: "tcp:" + ln.Addr().String(), Format: CF32, Rate: rate}}},
		{Inputs: []Input{{Source: name, Rate: rate}}, Paced: true},
		{Inputs: []Input{{Source: writeSamples(t, "x.sc16", encodeSamples(SC16, samples))}}},
		{Inputs: []Input{{Source: writeSamples(t, "x.cu8", encodeSamples(CU8, samples))}}},
		{Inputs: []Input{{Source: writeSamples(t, "x.sc8", encodeSamples(SC8, samples))}}},
		{Inputs: []Input{{Source: writeSamples(t, "swapped.cf32", encodeSamples(CF32, swapped(samples)))}}},
		{Inputs: []Input{{Source: "-", Format: CF32, Rate: rate, SwapIQ: true}},
			Stdin: bytes.NewReader(encodeSamples(CF32, swapped(samples)))},
	} {
		begin := time.Now()
		if got := heardIn(t, c); !maps.Equal(got, want) {
			t.Errorf("%+v: %d messages, want %d", c.Inputs, len(got), len(want))
		}
		if took := time.Since(begin); c.Paced && took < 28*time.Millisecond {
			t.Errorf("paced: 30 ms in %v", took)
		}
	}
}

// TestNumbers checks that carriers share one count, whichever starts first, when the frame numbers
// of one have wrapped, and after a silence of any length.
func TestNumbers(t *testing.T) {
	type numbered struct {
		c     int
		tti   int64
		start int64 // subframe
		want  int64
	}
	for _, all := range [][]numbered{
		{{c: 0, tti: 10239, want: 20479}, {c: 1, tti: 0, want: 20480}, {c: 0, tti: 0, start: 1, want: 20480},
			{c: 1, tti: 1, start: 1, want: 20481}},
		{{c: 0, tti: 0, want: 10240}, {c: 1, tti: 10239, want: 10239}, {c: 1, tti: 0, start: 1, want: 10240}},
		{{c: 0, tti: 5, want: 10245}, {c: 0, tti: 6, start: 10241, want: 20486},
			{c: 1, tti: 7, start: 3, want: 20487}, {c: 0, tti: 10, start: 41205, want: 20490 + 3*10240}},
	} {
		l := &Listener{carriers: []*carrier{{State: State{Rate: 1_920_000}}, {State: State{Rate: 1_920_000}}}}
		for _, x := range all {
			h := &receivedSubframe{Subframe: Subframe{Subframe: &lte.Subframe{SFN: int(x.tti / 10),
				Index: int(x.tti % 10), Start: x.start * 1920}}}
			if l.assignNumber(l.carriers[x.c], h); h.Number != x.want {
				t.Errorf("%+v: %d", x, h.Number)
			}
		}
	}
}

// TestDue checks that subframes of files are delivered in order, and wait for a carrier with
// possibly earlier ones, but not forever.
func TestDue(t *testing.T) {
	a, b := &carrier{State: State{HasCell: true}}, &carrier{}
	l := &Listener{carriers: []*carrier{a, b}}
	add := func(c *carrier, n int64) {
		c.held, c.lastNumber = append(c.held, &receivedSubframe{Subframe: Subframe{Number: n}}), n
	}
	for n := range int64(maxHeld - 1) {
		add(a, n)
	}
	if out := l.takeDueSubframes(); len(out) != 0 {
		t.Errorf("%d are not waited with", len(out))
	}
	add(a, maxHeld-1)
	if out := l.takeDueSubframes(); len(out) != 1 || out[0].Number != 0 {
		t.Errorf("%v", out)
	}
	b.HasCell = true
	add(b, 50)
	out := l.takeDueSubframes()
	if len(out) != 51 || !slices.IsSortedFunc(out,
		func(x, y *receivedSubframe) int { return int(x.Number - y.Number) }) {
		t.Errorf("%d", len(out))
	}
	b.ended = true
	if out := l.takeDueSubframes(); len(out) != maxHeld-51 {
		t.Errorf("%d", len(out))
	}
}

// TestDrop checks that samples from a radio that arrive too fast are dropped and counted, and that
// other sources block.
func TestDrop(t *testing.T) {
	const pieces, rate = 5 * maxQueuedChunks, 1_920_000
	for name, late := range map[string]time.Duration{"radio": time.Hour, "no radio": 0} {
		raw := make([]byte, pieces*rate/500*2)
		end := atEnd{make(chan struct{})}
		c := &carrier{State: State{Format: CU8, Rate: rate},
			input: io.NopCloser(io.MultiReader(bytes.NewReader(raw), end))}
		in := &liveReader{carrier: c, out: make(chan chunk, maxQueuedChunks),
			free: make(chan []byte, maxQueuedChunks+2)}
		if late > 0 {
			in.startTime = time.Now().Add(-late)
		}
		done := make(chan struct{})
		go func() { in.runSourceLoop(t.Context()); close(done) }()
		if late > 0 {
			<-end.reached // everything is read without a consumer
		}
		n, lost, most := int64(0), int64(0), 0
		for {
			most = max(most, len(in.out))
			x := <-in.out
			n += int64(len(x.raw) / 2)
			lost += x.lost
			in.recycleBuffer(x.raw)
			if x.err != nil {
				break
			}
		}
		if n+lost != pieces*rate/500 || most > maxQueuedChunks || (lost > 0) != (late > 0) {
			t.Errorf("%s: %d samples, %d lost, %d pieces held", name, n, lost, most)
		}
		<-done
	}
}

// TestQuiet checks that a listener on a silent source ends without delay.
func TestQuiet(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	l, err := Open(ctx, Config{Inputs: []Input{{Source: "-", Format: SC16, Rate: 1_920_000}}, Stdin: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(ctx, func(*Subframe) { t.Error("something was heard") }); err != nil {
		t.Error(err)
	}
}

// TestInputContext checks that the end of the context that an input was opened with is no error,
// even if that of Run has not ended yet.
func TestInputContext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "samples.sock")
	server, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := Open(ctx, Config{Inputs: []Input{{Source: "unix:" + socket, Format: SC16, Rate: 1_920_000}}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := l.Run(t.Context(), func(*Subframe) {}); err != nil {
		t.Error(err)
	}
}

// atEnd ends a source and reports that everything before was read.
type atEnd struct{ reached chan struct{} }

func (e atEnd) Read([]byte) (int, error) {
	select {
	case <-e.reached:
	default:
		close(e.reached)
	}
	return 0, io.EOF
}
