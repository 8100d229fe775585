// SPDX-License-Identifier: Apache-2.0

package air

import (
	"fmt"
	"maps"
	"math"
	"math/cmplx"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/pbe/lte"
)

// swapped returns samples with I and Q exchanged.
func swapped(samples []complex64) []complex64 {
	out := slices.Clone(samples)
	swapIQ(out)
	return out
}

// TestResampler: a tone keeps its frequency, amplitude and phase, in pieces of any size.
func TestResampler(t *testing.T) {
	for _, rates := range [][2]int{{10_000_000, 11_520_000}, {2_400_000, 3_840_000}, {20_000_000, 23_040_000},
		{9_999_937, 11_520_000}} {
		for _, part := range []float64{-0.42, 0.01, 0.3, 0.44} { // of the input's rate
			tone := make([]complex64, 20_000)
			for i := range tone {
				tone[i] = complex64(cmplx.Rect(1, 2*math.Pi*part*float64(i)))
			}
			r := newResampler(rates[0], rates[1])
			var out []complex64
			for piece := range slices.Chunk(tone, 777) {
				out = r.appendResampled(out, piece)
			}
			ratio := float64(rates[0]) / float64(rates[1])
			complete := r.appendRest(slices.Clone(out))
			if want := float64(len(tone)) / ratio; math.Abs(float64(len(complete))-want) > 2 {
				t.Errorf("%v: %d samples, want %.0f", rates, len(complete), want)
			}
			worst := 0.0
			for n := 100; n < len(out); n++ {
				d := complex128(out[n]) - cmplx.Rect(1, 2*math.Pi*part*float64(n)*ratio)
				worst = max(worst, cmplx.Abs(d))
			}
			if worst > 0.06 {
				t.Errorf("%v, a tone at %.2f of the rate: off by %.3f", rates, part, worst)
			}
		}
	}
}

// TestAnyRate: a cell is decoded at rates that are not those of LTE, and the samples of its subframes are counted at
// the input's rate. A cell that is wider than the samples is not.
func TestAnyRate(t *testing.T) {
	samples := testSignal(t, 40)
	want := heardIn(t, Config{Inputs: []Input{{Source: writeSamples(t, "x.cf32", encodeSamples(CF32, samples))}}})
	for _, rate := range []int{2_400_000, 10_000_000} {
		raw := encodeSamples(SC16, newResampler(1_920_000, rate).appendResampled(nil, samples))
		l, err := Open(t.Context(), Config{Inputs: []Input{{Source: writeSamples(t, "x.sc16", raw), Rate: rate}}})
		if err != nil {
			t.Fatal(err)
		}
		got, last := map[string]int{}, int64(0)
		if err := l.Run(t.Context(), func(s *Subframe) {
			for _, d := range s.DCIs {
				got[fmt.Sprint(s.Cell, s.Number, d.RNTI, d.Format, d.CCE, d.Level)]++
			}
			if at := s.Start - last; last > 0 && at != int64(rate/1000) {
				t.Errorf("%d: a subframe of %d samples", rate, at)
			}
			last = s.Start
		}); err != nil {
			t.Fatal(err)
		}
		missing := len(want)
		for k := range got {
			if want[k] > 0 {
				missing--
			}
		}
		if missing > 4 || len(got) > len(want) { // the last subframe may be cut
			t.Errorf("%d: %d messages, %d missing of %d", rate, len(got), missing, len(want))
		}
	}
	tx, err := lte.NewTransmitter(lte.Cell{ID: 7, PRB: 15, Ports: 1, PHICHSixths: 6}, 3_840_000, lte.Channel{SNR: 25}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var wide []complex64
	for i := range int64(40) {
		wide = append(wide, tx.SendGrants(10230+i, nil)...)
	}
	r, _, err := newReceiver(2_400_000)
	if err != nil {
		t.Fatal(err)
	}
	r.OnSubframe = func(*lte.Subframe) { t.Error("a cell of 2.7 MHz in 2.4 MHz") }
	r.Feed(wide)
	r.Close()
	if o := r.Obstacle(); o.Reason != lte.TooWide || o.Cell.PRB != 15 {
		t.Errorf("%v", o)
	}
	for _, rate := range []int{1_399_999, 30_720_001} {
		if _, err := receiverRate(rate); !fault.Is(err, fault.Usage) {
			t.Errorf("%d: %v", rate, err)
		}
	}
}

// TestGapAtAnyRate: after lost samples the resampled time goes on where it should, and odd rates do not split samples.
func TestGapAtAnyRate(t *testing.T) {
	for _, rate := range []int{2_400_000, 2_083_333} {
		signal := newResampler(1_920_000, rate).appendResampled(nil, testSignal(t, 100))
		c := &carrier{State: State{Format: SC16, Rate: rate}, isFile: true}
		if err := c.startReceiver(); err != nil {
			t.Fatal(err)
		}
		const from, to = 40, 52 // ms
		a, b := rate/1000*from, rate/1000*to
		c.feedSamples(encodeSamples(SC16, signal[:a]), 0)
		c.feedSamples(encodeSamples(SC16, signal[b:]), int64(b-a))
		c.closeReceiver(nil)
		after := 0
		for _, h := range c.pending {
			if h.Start > int64(b) {
				after++
			}
		}
		if got := c.receiver.Counts(); got.Found != 1 || got.Reacquired > 0 || after < 44 {
			t.Errorf("%d: %+v, %d subframes after the gap", rate, got, after)
		}
	}
	raw := encodeSamples(SC16, newResampler(1_920_000, 2_083_333).appendResampled(nil, testSignal(t, 60)))
	for _, paced := range []bool{false, true} {
		got := heardIn(t, Config{Inputs: []Input{{Source: writeSamples(t, "x.sc16", raw), Rate: 2_083_333}}, Paced: paced})
		if len(got) < 100 {
			t.Errorf("paced %v: %d messages at a rate that is no multiple of 1 kHz", paced, len(got))
		}
	}
}

// TestSwapped: a file is decoded with I and Q exchanged, with a warning; a live source gets the advice.
func TestSwapped(t *testing.T) {
	samples := swapped(testSignal(t, 60))
	l, err := Open(t.Context(), Config{Inputs: []Input{{Source: writeSamples(t, "x.cf32", encodeSamples(CF32, samples))}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.State()[0]
	if text := strings.Join(s.Warnings(), "\n"); !s.SwapIQ || !s.SwapDetected || !strings.Contains(text, "--swap-iq") {
		t.Errorf("%+v: %s", s, text)
	}
	raw := encodeSamples(SC16, samples)
	err = Listen(t.Context(), []Input{{Source: "-", Format: SC16, Rate: 1_920_000}}, func(*Subframe) {})
	if err == nil {
		t.Error("no standard input")
	}
	l, err = Open(t.Context(), Config{Inputs: []Input{{Source: "-", Format: SC16, Rate: 1_920_000}},
		Stdin: strings.NewReader(string(raw))})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), func(*Subframe) { t.Error("something was heard") }); !fault.Is(err, fault.Usage) ||
		fault.HintOf(err) != "use --swap-iq" {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
}

// TestSigMF: format and rate are those of the metadata, unless they are given. Broken metadata are an error with a
// hint.
func TestSigMF(t *testing.T) {
	samples := testSignal(t, 30)
	want := heardIn(t, Config{Inputs: []Input{{Source: writeSamples(t, "x.cf32", encodeSamples(CF32, samples))}}})
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data := write("a.sigmf-data", string(encodeSamples(SC16, samples)))
	meta := write("a.sigmf-meta", `{"global": {"core:datatype": "ci16_le", "core:sample_rate": 1920000.0,
		"core:version": "1.0.0"}, "captures": [], "annotations": []}`)
	for _, path := range []string{data, meta} {
		if got := heardIn(t, Config{Inputs: []Input{{Source: path}}}); !maps.Equal(got, want) {
			t.Errorf("%s: %d messages, want %d", path, len(got), len(want))
		}
	}
	in := Input{Source: data, Format: CU8, Rate: 3_840_000}
	if err := in.fillFromSigMF(); err != nil || in.Format != CU8 || in.Rate != 3_840_000 {
		t.Errorf("%v: %+v", err, in)
	}
	for text, says := range map[string]string{
		"no JSON": "no SigMF metadata",
		`{"global": {"core:datatype": "rf64_be"}}`:                         `datatype "rf64_be"`,
		`{"global": {"core:datatype": "ci16_le", "core:num_channels": 2}}`: "2 channels",
	} {
		write("a.sigmf-meta", text)
		if err := (&Input{Source: data}).fillFromSigMF(); err == nil || !strings.Contains(err.Error(), says) ||
			fault.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", text, err, fault.HintOf(err))
		}
	}
	if err := os.Remove(meta); err != nil {
		t.Fatal(err)
	}
	if err := (&Input{Source: data}).fillFromSigMF(); err != nil {
		t.Errorf("samples alone: %v", err)
	}
	if err := (&Input{Source: meta}).fillFromSigMF(); err == nil {
		t.Error("missing metadata were read")
	}
}
