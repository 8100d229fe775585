// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

func TestMahimahi(t *testing.T) {
	p, err := ReadMahimahi(strings.NewReader("0\n50\n99\n\n310\n"))
	if err != nil || p.Step != Step || !slices.Equal(p.Rates, []unit.Rate{360_000, 0, 0, 120_000}) {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := ReadMahimahi(strings.NewReader("0\n99999999999\n")); err != nil || len(p.Rates) != 1 {
		t.Errorf("what comes after an hour is not left out: %d, %v", len(p.Rates), err)
	}
}

func TestPerSecond(t *testing.T) {
	p, err := ReadPerSecond(strings.NewReader("1,1000\n2, 2000.5\n4,0\n"))
	if err != nil || p.Step != time.Second || !slices.Equal(p.Rates, []unit.Rate{8000, 16004, 0, 0}) {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := ReadPerSecond(strings.NewReader("1,1\n2000000000,5\n")); err != nil || len(p.Rates) != 1 {
		t.Errorf("what comes after an hour is not left out: %d, %v", len(p.Rates), err)
	}
}

func TestTimed(t *testing.T) {
	p, err := ReadTimed(strings.NewReader("0.25 1\n0.31 2.5\n0.34 3\n\n0.62 0\n"))
	if want := []unit.Rate{1e6, 1e6, 1e6, 3e6, 3e6, 3e6, 0}; err != nil || p.Step != Step ||
		!slices.Equal(p.Rates, want) {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := ReadTimed(strings.NewReader("0 1\n99999999 5\n")); err != nil || len(p.Rates) != 1 {
		t.Errorf("what comes after an hour is not left out: %d, %v", len(p.Rates), err)
	}
}

func TestBadTraces(t *testing.T) {
	for name, read := range map[string]struct {
		f   func(io.Reader) (Profile, error)
		bad []string
	}{
		"mahimahi": {ReadMahimahi, []string{"", "\n", "x", "-1", "500\n100", "1.5", "1,2",
			strings.Repeat("1", 70_000)}},
		"Timed": {ReadTimed, []string{"", "1", "1 2 3", "x 1", "1 x", "-1 1", "1 -1", "1 NaN", "NaN 1", "1 1e300",
			"2 1\n2 1", "2 1\n1 1"}},
		"PerSecond": {ReadPerSecond, []string{"", "0,5", "1", "1,", "x,1", "1,-1", "1,NaN", "1,1e300", "2,1\n2,1",
			"2,1\n1,1"}},
	} {
		for _, text := range read.bad {
			if p, err := read.f(strings.NewReader(text)); err == nil {
				t.Errorf("%s: %.20q is no trace, and gave %d samples", name, text, len(p.Rates))
			}
		}
	}
}

// FuzzTraces: no text takes more memory than MaxLength allows, nor gives a negative rate.
func FuzzTraces(f *testing.F) {
	f.Add("0\n50\n99\n")
	f.Add("1,1000\n2,3\n")
	f.Add("0.5 1\n2 3.5\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(io.Reader) (Profile, error){ReadMahimahi, ReadPerSecond, ReadTimed} {
			p, err := read(strings.NewReader(text))
			if len(p.Rates) > int(MaxLength/Step) || err == nil && slices.Min(p.Rates) < 0 {
				t.Errorf("%d samples of %q", len(p.Rates), text)
			}
		}
	})
}
