package air

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"mpbond/base/fault"
	"mpbond/pbe/lte"
)

// lteRates are those that LTE is sampled at, the most usual of cells first.
var lteRates = []int{15_360_000, 30_720_000, 7_680_000, 23_040_000, 3_840_000, 1_920_000}

const rateNames = "1.92, 3.84, 7.68, 15.36, 23.04 or 30.72 million (1.92M)"

// searchSeconds is how much is searched at once, in seconds: as much as a receiver looks
// through before it forgets.
const searchSeconds = 0.063

// goodSNR is that of a cell (dB) from which on no other rate is tried.
const goodSNR = 5

// hintNoCell is what may be wrong where no cell is found.
const hintNoCell = "does the front end hear an FDD cell with normal prefix in the middle of its band, at one of LTE's rates, neither too faint nor too loud?"

// searchOffsets are where samples are looked at in a file: it may begin with silence.
func searchOffsets(size int64) []int64 {
	if size < 64<<20 {
		return []int64{0}
	}
	return []int64{0, size / 4, size / 2, size / 4 * 3}
}

// readStretch reads what is searched at any rate, from a whole sample on, before end.
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

// searchRates finds the rate at which there is a cell in raw, 0 if there is none; then why
// tells what is there instead, if anything. It ends early when ctx does.
func searchRates(ctx context.Context, f Format, raw []byte, rates []int) (rate int, why lte.Obstacle) {
	samples := f.Decode(nil, raw)
	best := 0.0
	for _, try := range rates {
		r, err := lte.NewReceiver(try)
		if err != nil || ctx.Err() != nil {
			continue
		}
		// Many with a good signal, rather than few: a frame's CRC of 16 bits is right by
		// chance now and then.
		n, power, messages := 0, 0.0, 0
		r.OnSubframe = func(s *lte.Subframe) {
			n++
			power += math.Max(s.SNR, -20)
			messages += len(s.DCIs)
		}
		r.Feed(samples[:min(len(samples), int(searchSeconds*float64(try)))])
		r.Close()
		snr := power / float64(max(n, 1))
		if n >= 5 && snr > goodSNR && messages > 0 {
			return try, lte.Obstacle{}
		}
		if o := r.Obstacle(); n == 0 && o.Reason > why.Reason && (o.Reason != lte.TooWide || len(rates) == 1) {
			why = o
		}
		if sum := power + 20*float64(n); n > 0 && snr > 0 && sum > best {
			rate, best = try, sum
		}
	}
	return rate, why
}

// otherFormats are what files begin with that are something else.
var otherFormats = []struct{ magic, what, hint string }{
	{"mpbcell", "a recording of control messages", "cellwatch capacity reads it"},
	{"RIFF", "a WAV file", "write its samples without head, as sc16"},
	{"\x1f\x8b", "a compressed file", "gunzip it"},
	{"\x28\xb5\x2f\xfd", "a compressed file", "zstd -d it"},
	{"BZh", "a compressed file", "bunzip2 it"},
	{"\xfd7zXZ", "a compressed file", "unxz it"},
	{"PK\x03\x04", "an archive", "unzip it"},
	{"\x7fELF", "a program", "name a file of samples"},
	{"\x89PNG", "an image", "name a file of samples"},
}

// checkNotSamples is why what begins so is something else than samples.
func checkNotSamples(r io.ReaderAt, size int64) error {
	if size == 0 {
		return fault.New(fault.Integrity, errors.New("there are no samples: it is empty"), "did the front end write anything?")
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
	if isText(head) {
		return fault.New(fault.Integrity, errors.New("this is text, not samples"), "name a file of samples as cf32, sc16 or cu8")
	}
	return nil
}

// isText tells whether b is for people: samples have all values.
func isText(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for cut := 0; cut < utf8.UTFMax && cut < len(b); cut++ { // may end within a character
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

// explainFailure says why no cell is heard in samples of a format, at a rate, or at any if it
// is 0; there is what was heard instead. It looks at what else they may be; that takes
// seconds, unless ctx ends.
func explainFailure(ctx context.Context, r *io.SectionReader, f Format, rate int, obstacle lte.Obstacle) error {
	if err := checkNotSamples(r, r.Size()); err != nil {
		return err
	}
	raw, err := readStretch(r, 0, r.Size(), f)
	if err != nil {
		return err
	}
	var m levelMeter
	m.addSamples(f.Decode(nil, raw))
	if len(raw) < f.Size() {
		return fault.New(fault.Integrity, fmt.Errorf("%d bytes are no sample as %s", len(raw), f), "did the front end write anything?")
	}
	if m.peak == 0 {
		return fault.New(fault.NotFound, errors.New("there is silence: all samples are 0"), "does the front end hear anything? its gain, its antenna")
	}
	if m.clippedPart() > 0.99 && m.peak > 0.9 {
		return fault.New(fault.NotFound, errors.New("all samples are cut off"), "is the front end's gain too high?")
	}
	if m.clippedPart() > 0.99 {
		return fault.New(fault.NotFound, errors.New("all samples are alike"), "does the front end hear anything? its gain, its antenna")
	}
	if n := len(raw) / f.Size(); n < lteRates[len(lteRates)-1]/1000*3 {
		return fault.New(fault.NotFound, fmt.Errorf("%d samples are too few", n), "record for 0.1 s at least")
	}
	if rate != 0 && (f != CF32 || looksLike(raw, f)) {
		var others []int
		for _, r := range lteRates {
			if r != rate {
				others = append(others, r)
			}
		}
		if fits, _ := searchRates(ctx, f, raw, others); fits != 0 {
			return fault.New(fault.Usage, fmt.Errorf("no cell is heard at %s samples a second, but one at %s", formatRate(rate), formatRate(fits)), "say --rate "+formatRate(fits))
		}
	}
	if other := guessFormat(raw, f); other != AnyFormat {
		hint := "say --format " + other.String()
		if rate, _ := searchRates(ctx, other, raw, lteRates); rate != 0 {
			return fault.New(fault.Usage, fmt.Errorf("these are no samples as %s; as %s there is a cell, at %s a second", f, other, formatRate(rate)), hint+" --rate "+formatRate(rate))
		}
		if !looksLike(raw, f) {
			return fault.New(fault.Integrity, fmt.Errorf("these do not look like samples as %s, rather as %s", f, other), hint+", if they are samples")
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !looksLike(raw, f) {
		return fault.New(fault.Integrity, fmt.Errorf("these do not look like samples as %s", f), "are they samples, and of which format?")
	}
	if hint, ok := obstacleHints[obstacle.Reason]; ok {
		return fault.New(fault.Unsupported, errors.New(obstacle.String()), hint)
	}
	at := ""
	if rate != 0 {
		at = " at " + formatRate(rate) + " samples a second"
	}
	if clip := m.clippedPart(); clip > clippingWarning {
		return fault.New(fault.NotFound, fmt.Errorf("no LTE cell is heard%s; %.0f %% of the samples are cut off", at, 100*clip), "is the front end's gain too high?")
	}
	return fault.New(fault.NotFound, fmt.Errorf("no LTE cell is heard%s; the level is %.0f dB", at, m.levelDB()), hintNoCell)
}

// obstacleHints are cells that cannot be listened to, with what can be done.
var obstacleHints = map[lte.Reason]string{
	lte.UnreadableMIB:  "is it strong enough, and alone at its frequency?",
	lte.TooWide:        "record more samples a second",
	lte.FourPorts:      "listen to another cell",
	lte.ExtendedPrefix: "listen to another cell",
	lte.TDD:            "listen to another cell",
}

// clippingWarning is the part of samples that are cut off from which on that is told.
const clippingWarning = 0.01

// formatRate is a rate as people write it.
func formatRate(rate int) string { return fmt.Sprintf("%gM", float64(rate)/1e6) }

// guessFormat is as what else raw could be samples.
func guessFormat(raw []byte, f Format) Format {
	for other := CF32; int(other) < len(formatTable); other++ {
		if other != f && looksLike(raw, other) {
			return other
		}
	}
	return AnyFormat
}

// looksLike tells whether raw looks like samples of a format rather than of another.
func looksLike(raw []byte, f Format) bool {
	raw = raw[:min(len(raw), 1<<20)]
	// Of numbers that are others' bits half have exponents beyond all measure.
	good, n := 0, 0
	for _, s := range CF32.Decode(nil, raw) {
		for _, v := range []float32{abs(real(s)), abs(imag(s))} {
			n++
			if v == 0 || v > 1e-12 && v < 1e12 {
				good++
			}
		}
	}
	if float := n > 0 && good > n*99/100; float || f == CF32 {
		return float && f == CF32
	}
	// Bytes around the middle: those of cu8 are; the upper ones of sc16 are not, unless
	// it is far too loud.
	var middle [2]int
	for i, b := range raw {
		if b >= 64 && b < 192 {
			middle[i%2]++
		}
	}
	half := len(raw) / 2
	if f == SC16 {
		return middle[1] < half*4/10
	}
	return middle[0] > half*6/10 && middle[1] > half*6/10
}
