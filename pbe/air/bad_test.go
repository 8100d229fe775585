// SPDX-License-Identifier: Apache-2.0

package air

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// TestBad checks the errors for inputs that are not what the parameters say, with the right ones if
// these can be detected.
func TestBad(t *testing.T) {
	const rate, few = 1_920_000, 6000 // a few samples of noise suffice
	good := testSignal(t, 13)
	rnd := rand.New(rand.NewPCG(1, 1))
	noise, tone, loud := make([]complex64, few), make([]complex64, few), make([]complex64, few)
	for i := range noise {
		noise[i] = complex64(complex(rnd.NormFloat64(), rnd.NormFloat64()))
		tone[i] = complex64(complex(math.Cos(float64(i)/7), math.Sin(float64(i)/7)))
		cut := func(v float64) float64 { return math.Min(math.Max(v, -1.5), 1.5) }
		loud[i] = complex64(complex(cut(rnd.NormFloat64()), cut(rnd.NormFloat64())))
	}
	random := make([]byte, 60_000)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	var rec bytes.Buffer
	w, err := cell.NewWriter(&rec, [cell.MaxCells]uint8{6})
	if err != nil || w.Flush() != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		raw    []byte
		format Format
		rate   int
		kind   fault.Kind
		says   string
		hint   string
	}{
		{"wrong rate.cf32", encodeSamples(CF32, good), AnyFormat, 3_840_000, fault.Usage, "but one at 1.92M",
			"--rate 1.92M"},
		{"no rate of LTE's.cf32", encodeSamples(CF32, good), AnyFormat, 2_000_000, fault.Usage,
			"no cell at 2M samples per second, but one at 1.92M", "1.92"},
		{"wrong format.sc16", encodeSamples(CF32, good), AnyFormat, rate, fault.Usage,
			"as cf32 they have a cell, at 1.92M", "--format cf32 --rate 1.92M"},
		{"wrong format.cf32", encodeSamples(SC16, good), AnyFormat, 0, fault.Usage,
			"as sc16 they have a cell, at 1.92M", "--format sc16"},
		{"wrong format.cu8", encodeSamples(SC16, good), AnyFormat, 0, fault.Usage, "as sc16 they have a cell",
			"--format sc16"},
		{"signed.sc16", encodeSamples(SC8, good), AnyFormat, 0, fault.Usage, "as sc8 they have a cell", "--format sc8"},
		{"noise.sc8.cu8", encodeSamples(SC8, noise), AnyFormat, 0, fault.Integrity, "but like sc8", "--format sc8"},
		{"meta.cf32", []byte("{\"global\": {}}" + strings.Repeat(" ", 5000)), AnyFormat, 0, fault.Integrity, "JSON", "SigMF"},
		{"bytes.sc16", encodeSamples(CU8, good), AnyFormat, 0, fault.Usage, "as cu8 they have a cell", "--format cu8"},
		{"no format.bin", encodeSamples(SC16, good), AnyFormat, 0, fault.Usage, "not that of a sample format",
			"--format"},
		{"empty.cf32", nil, AnyFormat, 0, fault.Integrity, "empty", "front end writes"},
		{"short.cf32", encodeSamples(CF32, good[:1500]), AnyFormat, 0, fault.NotFound, "1500 samples are too few",
			"0.1 s"},
		{"silence.cf32", make([]byte, 400_000), AnyFormat, rate, fault.NotFound, "all samples are 0", "gain"},
		{"silence.cu8", bytes.Repeat([]byte{128}, 200_000), AnyFormat, 0, fault.NotFound, "same value", "gain"},
		{"square.sc16", bytes.Repeat([]byte{0xff, 0x7f, 0xff, 0x7f, 0x01, 0x80, 0x01, 0x80}, 3000), AnyFormat, rate,
			fault.NotFound, "all samples are clipped", "gain"},
		{"noise.cf32", encodeSamples(CF32, noise), AnyFormat, 0, fault.NotFound,
			"no LTE cell found; the level is 3 dB", "FDD"},
		{"noise.sc16", encodeSamples(SC16, noise), AnyFormat, rate, fault.NotFound, "no LTE cell found at 1.92M",
			"FDD"},
		{"tone.cf32", encodeSamples(CF32, tone), AnyFormat, 0, fault.NotFound, "no LTE cell", "FDD"},
		{"saturated.cf32", encodeSamples(CF32, loud), AnyFormat, 0, fault.NotFound, "are clipped", "gain"},
		{"random.sc16", random, AnyFormat, 0, fault.Integrity, "do not look like sc16 samples", "--format"},
		{"random.cf32", random, AnyFormat, 0, fault.Integrity, "do not look like cf32 samples", "--format"},
		{"text.cf32", []byte(strings.Repeat("Zu Köln, a walk\n", 10_000)), AnyFormat, 0, fault.Integrity,
			"this is text", "cu8 or sc8"},
		{"messages.cf32", rec.Bytes(), AnyFormat, 0, fault.Integrity, "control messages", "cellwatch capacity"},
		{"sound.cf32", []byte("RIFF....WAVEfmt "), AnyFormat, 0, fault.Integrity, "WAV", "header"},
		{"", nil, CF32, rate, fault.Config, "directory", "FIFO"},
		{"none/there.cf32", nil, AnyFormat, 0, fault.NotFound, "no such file", "FIFO"},
	} {
		path := filepath.Join(dir, c.name)
		if c.raw != nil || c.name == "empty.cf32" {
			path = writeSamples(t, c.name, c.raw)
		}
		err := Listen(t.Context(), []Input{{Source: path, Format: c.format, Rate: c.rate}},
			func(*Subframe) { t.Errorf("%s: something was heard", c.name) })
		if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%s: %v: %v (%s)", c.name, fault.KindOf(err), err, fault.HintOf(err))
		}
	}
	for reason, hint := range obstacleHints {
		raw := encodeSamples(CF32, noise)
		err := explainFailure(t.Context(), io.NewSectionReader(bytes.NewReader(raw), 0, int64(len(raw))),
			sampleCode{format: CF32}, rate, lte.Obstacle{Reason: reason, Cell: lte.Cell{ID: 77}})
		if fault.KindOf(err) != fault.Unsupported || !strings.Contains(err.Error(), "cell 77") ||
			fault.HintOf(err) != hint {
			t.Errorf("%v: %v", reason, err)
		}
	}
	// Live sources report the same at their end; they also need explicit parameters.
	for _, c := range []struct {
		in   Input
		raw  []byte
		says string
	}{
		{Input{Source: "-", Rate: rate}, nil, "format of the samples"},
		{Input{Source: "-", Format: CF32}, nil, "sample rate"},
		{Input{Source: "tcp:nowhere"}, nil, "missing port"},
		{Input{Source: "unix:" + dir + "/none"}, nil, "no such file"},
		{Input{Source: "-", Format: CF32, Rate: 3_840_000}, encodeSamples(CF32, good), "but one at 1.92M"},
		{Input{Source: "-", Format: CF32, Rate: rate}, encodeSamples(SC16, good), "as sc16 they have a cell"},
		{Input{Source: "-", Format: SC16, Rate: rate}, nil, "empty"},
	} {
		l, err := Open(t.Context(), Config{Inputs: []Input{c.in}, Stdin: bytes.NewReader(c.raw)})
		if err == nil {
			err = l.Run(t.Context(), func(*Subframe) {})
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v", c.in, err)
		}
	}
}

// TestDoubts checks the warnings about inputs that can be decoded all the same.
func TestDoubts(t *testing.T) {
	samples := testSignal(t, 25)
	for i, s := range samples {
		cut := func(v float32) float32 { return min(max(v, -0.8), 0.8) }
		samples[i] = complex(cut(real(s)), cut(imag(s)))
	}
	raw := encodeSamples(CF32, samples)
	l, err := Open(t.Context(), Config{Inputs: []Input{{Source: writeSamples(t, "x.cf32", raw[:len(raw)-3])}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), func(*Subframe) {}); err != nil {
		t.Error(err)
	}
	s := l.State()[0]
	s.Lost, s.Gaps = 1_920_000, 3
	words := strings.Join(s.Warnings(), "; ")
	for _, want := range []string{"are clipped", "5 extra bytes", "1.000 s of samples were dropped in 3 pieces"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q lacks %q", words, want)
		}
	}
}
