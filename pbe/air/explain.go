// SPDX-License-Identifier: Apache-2.0

package air

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"mpbond/base/fault"
	"mpbond/pbe/lte"
)

// lteRates are the sample rates of LTE, the most common cell widths first.
var lteRates = []int{15_360_000, 30_720_000, 7_680_000, 23_040_000, 3_840_000, 1_920_000, 11_520_000, 5_760_000}

const rateNames = "1.4M to 30.72M, such as 1.92M, 11.52M or 20M"

// searchSeconds is the length of one search in seconds: as much as a receiver searches before it
// forgets.
const searchSeconds = 0.063

// goodSNR is the SNR of a cell (dB) from which on no other rate is tried.
const goodSNR = 5

// hintNoCell is the hint where no cell is found.
const hintNoCell = "tune the front end to the centre of an FDD cell with normal prefix, " +
	"use an LTE sample rate, and check the gain"

// searchOffsets returns the offsets to search in a file, which may begin with silence.
func searchOffsets(size int64) []int64 {
	if size < 64<<20 {
		return []int64{0}
	}
	return []int64{0, size / 4, size / 2, size / 4 * 3}
}

// readStretch reads the samples of one search at any rate, aligned to a whole sample, before end.
func readStretch(r io.ReaderAt, at, end int64, f Format) ([]byte, error) {
	size := f.Size()
	at -= at % int64(size)
	raw := make([]byte, min(int64(searchSeconds*float64(lteRates[1]))*int64(size), end-at))
	n, err := r.ReadAt(raw, at)
	if err == io.EOF {
		err = nil
	}
	return raw[:n], err
}

// sampleCode is how samples are encoded.
type sampleCode struct {
	format Format
	swapIQ bool
}

// decodeSamples appends the whole samples in raw to out.
func (s sampleCode) decodeSamples(out []complex64, raw []byte) []complex64 {
	n := len(out)
	if out = s.format.Decode(out, raw); s.swapIQ {
		swapIQ(out[n:])
	}
	return out
}

// searchRates returns the rate at which raw has a cell. If there is none it returns 0, and in why
// what was found instead, if anything. It stops when ctx ends.
func searchRates(ctx context.Context, f sampleCode, raw []byte, rates []int) (rate int, obstacle lte.Obstacle) {
	samples := f.decodeSamples(nil, raw)
	best := 0.0
	for _, try := range rates {
		r, convert, err := newReceiver(try)
		if err != nil || ctx.Err() != nil {
			continue
		}
		// Prefer many subframes with a good signal: the 16-bit CRC of a frame is sometimes right by
		// chance.
		n, power, messages := 0, 0.0, 0
		r.OnSubframe = func(s *lte.Subframe) {
			n++
			power += math.Max(s.SNR, -20)
			messages += len(s.DCIs)
		}
		r.Feed(convert.appendResampled(nil, samples[:min(len(samples), int(searchSeconds*float64(try)))]))
		r.Close()
		snr := power / float64(max(n, 1))
		if n >= 5 && snr > goodSNR && messages > 0 {
			return try, lte.Obstacle{}
		}
		if o := r.Obstacle(); n == 0 && o.Reason > obstacle.Reason && (o.Reason != lte.TooWide || len(rates) == 1) {
			obstacle = o
		}
		if sum := power + 20*float64(n); n > 0 && snr > 0 && sum > best {
			rate, best = try, sum
		}
	}
	return rate, obstacle
}

// otherFormats are the beginnings of files with other content.
var otherFormats = []struct{ magic, what, hint string }{
	{"mpbcell", "a recording of control messages", "cellwatch capacity reads it"},
	{"RIFF", "a WAV file", "convert it to raw sc16 samples without a header"},
	{"\x1f\x8b", "a compressed file", "gunzip it"},
	{"\x28\xb5\x2f\xfd", "a compressed file", "zstd -d it"},
	{"BZh", "a compressed file", "bunzip2 it"},
	{"\xfd7zXZ", "a compressed file", "unxz it"},
	{"PK\x03\x04", "an archive", "unzip it"},
	{"\x7fELF", "a program", "pass a file of samples"},
	{"\x89PNG", "an image", "pass a file of samples"},
}

// checkNotSamples returns an error if the beginning shows that r has no samples.
func checkNotSamples(r io.ReaderAt, size int64) error {
	if size == 0 {
		return fault.New(fault.Integrity, errors.New("there are no samples: the input is empty"),
			"check that the front end writes samples")
	}
	head := make([]byte, 4096)
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	head = head[:n]
	for _, k := range otherFormats {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return fault.New(fault.Integrity, fmt.Errorf("this is %s, not samples", k.what), k.hint)
		}
	}
	if looksLikeText(head) && bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) {
		return fault.New(fault.Integrity, errors.New("this is JSON, not samples"),
			"pass the file of samples; SigMF metadata are read if they lie beside it")
	}
	if looksLikeText(head) {
		return fault.New(fault.Integrity, errors.New("this is text, not samples"),
			"pass a file of samples: cf32, sc16, cu8 or sc8")
	}
	return nil
}

// looksLikeText reports whether b is text: samples have all byte values.
func looksLikeText(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for cut := 0; cut < utf8.UTFMax && cut < len(b); cut++ { // b may end within a character
		if !utf8.Valid(b[:len(b)-cut]) {
			continue
		}
		for _, c := range b {
			if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != 0x1b {
				return false
			}
		}
		return true
	}
	return false
}

// explainFailure returns why no cell is found in samples of a format, at a rate, or at any rate if
// it is 0. obstacle is what was found instead. It also tries other formats and rates, and to exchange I and Q,
// which takes seconds unless ctx ends.
func explainFailure(ctx context.Context, r *io.SectionReader, code sampleCode, rate int, obstacle lte.Obstacle) error {
	f := code.format
	if err := checkNotSamples(r, r.Size()); err != nil {
		return err
	}
	raw, err := readStretch(r, 0, r.Size(), f)
	if err != nil {
		return err
	}
	var m levelMeter
	m.addSamples(code.decodeSamples(nil, raw))
	if len(raw) < f.Size() {
		return fault.New(fault.Integrity, fmt.Errorf("%d bytes are less than one sample of %s", len(raw), f),
			"check that the front end writes samples")
	}
	if m.peak == 0 {
		return fault.New(fault.NotFound, errors.New("all samples are 0"), "check gain and antenna of the front end")
	}
	if m.clippedPart() > 0.99 && m.peak > 0.9 {
		return fault.New(fault.NotFound, errors.New("all samples are clipped"), "reduce the front end's gain")
	}
	if m.clippedPart() > 0.99 {
		return fault.New(fault.NotFound, errors.New("all samples have the same value"),
			"check gain and antenna of the front end")
	}
	if n := len(raw) / f.Size(); n < slices.Min(lteRates)/1000*3 {
		return fault.New(fault.NotFound, fmt.Errorf("%d samples are too few", n), "record at least 0.1 s")
	}
	if rate != 0 && (f != CF32 || looksLikeFormat(raw, f)) {
		var others []int
		for _, r := range lteRates {
			if r != rate {
				others = append(others, r)
			}
		}
		if fits, _ := searchRates(ctx, code, raw, others); fits != 0 {
			return fault.New(fault.Usage, fmt.Errorf("no cell at %s samples per second, but one at %s",
				formatSampleRate(rate), formatSampleRate(fits)), "use --rate "+formatSampleRate(fits))
		}
		if fits, _ := searchRates(ctx, sampleCode{f, !code.swapIQ}, raw, []int{rate}); fits != 0 {
			return errSwapped(code.swapIQ)
		}
	}
	likely := guessFormats(raw, f)
	for _, other := range likely {
		if rate, _ := searchRates(ctx, sampleCode{other, code.swapIQ}, raw, lteRates); rate != 0 {
			return fault.New(fault.Usage,
				fmt.Errorf("the samples are not %s: read as %s they have a cell, at %s samples per second", f, other,
					formatSampleRate(rate)), "use --format "+other.String()+" --rate "+formatSampleRate(rate))
		}
	}
	if len(likely) > 0 && !looksLikeFormat(raw, f) {
		return fault.New(fault.Integrity, fmt.Errorf("these do not look like %s samples, but like %s", f, likely[0]),
			"use --format "+likely[0].String()+", if they are samples")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !looksLikeFormat(raw, f) {
		return fault.New(fault.Integrity, fmt.Errorf("these do not look like %s samples", f),
			"check the file, and set --format")
	}
	if hint, ok := obstacleHints[obstacle.Reason]; ok {
		return fault.New(fault.Unsupported, errors.New(obstacle.String()), hint)
	}
	at := ""
	if rate != 0 {
		at = " at " + formatSampleRate(rate) + " samples per second"
	}
	if clip := m.clippedPart(); clip > clippingWarning {
		return fault.New(fault.NotFound, fmt.Errorf("no LTE cell found%s; %.0f %% of the samples are clipped", at,
			100*clip), "reduce the front end's gain")
	}
	return fault.New(fault.NotFound, fmt.Errorf("no LTE cell found%s; the level is %.0f dB", at, m.meanPowerDB()),
		hintNoCell)
}

// obstacleHints are hints for unsupported cells.
var obstacleHints = map[lte.Reason]string{
	lte.UnreadableMIB:  "improve the signal; another cell at the same frequency may interfere",
	lte.TooWide:        "record with a higher sample rate",
	lte.FourPorts:      "tune to another cell",
	lte.ExtendedPrefix: "tune to another cell",
	lte.TDD:            "tune to another cell",
}

// clippingWarning is the part of clipped samples from which on users are warned.
const clippingWarning = 0.01

// formatSampleRate returns a rate as people write it.
func formatSampleRate(rate int) string { return fmt.Sprintf("%gM", float64(rate)/1e6) }

// errSwapped reports that I and Q are in the other order than requested.
func errSwapped(swapIQ bool) error {
	if swapIQ {
		return fault.New(fault.Usage, errors.New("the samples are not swapped"), "leave out --swap-iq")
	}
	return fault.New(fault.Usage, errors.New("the samples have I and Q swapped: exchanged, they have a cell"),
		"use --swap-iq")
}

// guessFormats returns the other formats that fit raw.
func guessFormats(raw []byte, f Format) (all []Format) {
	for other := CF32; int(other) < len(formatTable); other++ {
		if other != f && looksLikeFormat(raw, other) {
			all = append(all, other)
		}
	}
	return all
}

// hasSmallWords reports whether raw has numbers of two bytes, all small: their high bytes are 0 or 255.
func hasSmallWords(raw []byte) bool {
	for i := 1; i < len(raw); i += 2 {
		if raw[i] != 0 && raw[i] != 255 {
			return false
		}
	}
	return true
}

// looksLikeFormat reports whether raw looks like samples of format f rather than of another one.
func looksLikeFormat(raw []byte, f Format) bool {
	raw = raw[:min(len(raw), 1<<20)]
	// Half of the floats made of other bits have absurd exponents.
	good, n := 0, 0
	for _, s := range CF32.Decode(nil, raw) {
		for _, v := range []float32{absFloat32(real(s)), absFloat32(imag(s))} {
			n++
			if v == 0 || v > 1e-12 && v < 1e12 {
				good++
			}
		}
	}
	if float := n > 0 && good > n*99/100; float || f == CF32 {
		return float && f == CF32
	}
	// Bytes near the middle: in cu8 all are, in sc8 none; in sc16 the upper bytes are not, unless the signal is
	// far too strong.
	var middle [2]int
	for i, b := range raw {
		if b >= 64 && b < 192 {
			middle[i%2]++
		}
	}
	half := len(raw) / 2
	switch f {
	case SC16: // low bytes have all values, unless the signal is very weak
		return middle[1] < half*4/10 && (middle[0] >= half*4/10 || hasSmallWords(raw))
	case SC8:
		return middle[0] < half*4/10 && middle[1] < half*4/10
	}
	return middle[0] > half*6/10 && middle[1] > half*6/10
}
