// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// maxTraceLines bounds the memory of a trace.
const maxTraceLines = 4_000_000

// AddTrace reads a trace that sets the program's rate. The first line that is no comment (#)
// determines the format:
//
//	mahimahi: one integer a line, ascending: at this many milliseconds
//	          1500 bytes may pass; it repeats after the last one.
//	CSV:      "seconds,rate" a line (rate as 8Mbit/s or plain bit/s; a header
//	          line is skipped). A rate holds until the next line. The last one
//	          holds as long as the one before it, then the trace repeats.
func (p *Program) AddTrace(r io.Reader) error {
	in := bufio.NewScanner(r)
	var track Track
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if n > maxTraceLines {
			return fmt.Errorf("trace longer than %d lines", maxTraceLines)
		}
		var err error
		if at, rate, csv := strings.Cut(line, ","); csv {
			if _, e := strconv.ParseFloat(strings.TrimSpace(at), 64); e != nil && len(track.Changes) == 0 {
				continue // header
			}
			err = track.addCSVLine(at, rate)
		} else {
			err = p.addMahimahiLine(line)
		}
		if err != nil {
			return fmt.Errorf("trace line %d: %w", n, err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	n := len(track.Changes)
	switch {
	case n > 0 && len(p.Grants) > 0:
		return fmt.Errorf("trace mixes mahimahi and CSV lines")
	case n > 0:
		if n > 1 {
			last := track.Changes[n-1].At
			track.Loop = 2*last - track.Changes[n-2].At
		}
		p.Base.Rate = *track.Changes[0].Rate // until the start
		p.Tracks = append(p.Tracks, track)
	case len(p.Grants) > 0:
		p.GrantLoop = p.Grants[len(p.Grants)-1]
		if p.GrantLoop <= 0 {
			return fmt.Errorf("a mahimahi trace must last longer than 0 ms")
		}
		// Grants at the end belong to the beginning of the next loop.
		for i := len(p.Grants) - 1; i >= 0 && p.Grants[i] == p.GrantLoop; i-- {
			p.Grants[i] = 0
		}
		slices.Sort(p.Grants)
	default:
		return fmt.Errorf("trace is empty")
	}
	return nil
}

// addCSVLine adds a line of a CSV trace.
func (t *Track) addCSVLine(at, rate string) error {
	sec, err := strconv.ParseFloat(strings.TrimSpace(at), 64)
	if err != nil || !(sec >= 0 && sec < 1e9) {
		return fmt.Errorf("time %q: write seconds", at)
	}
	v, err := unit.ParseRate(rate)
	if err != nil {
		return err
	}
	c := Change{At: time.Duration(sec * 1e9), Rate: &v}
	if n := len(t.Changes); n > 0 && t.Changes[n-1].At >= c.At {
		return fmt.Errorf("time %q is not after the previous line", at)
	} else if n == 0 {
		c.At = 0 // the first rate holds from the start
	}
	t.Changes = append(t.Changes, c)
	return nil
}

// addMahimahiLine adds a line of a mahimahi trace.
func (p *Program) addMahimahiLine(line string) error {
	ms, err := strconv.ParseInt(line, 10, 64)
	if err != nil || ms < 0 || ms > 1e9 {
		return fmt.Errorf("%q is neither milliseconds (mahimahi) nor seconds,rate (CSV)", line)
	}
	at := time.Duration(ms) * time.Millisecond
	if n := len(p.Grants); n > 0 && p.Grants[n-1] > at {
		return fmt.Errorf("time %q is before the previous line", line)
	}
	p.Grants = append(p.Grants, at)
	return nil
}
