// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// ReadMahimahi reads a trace with one time in ms a line, at which 1500 bytes may pass (mahimahi's
// mm-link). The profile has samples of Step and MaxLength at most.
func ReadMahimahi(r io.Reader) (Profile, error) {
	p := Profile{Step: Step}
	const bits = 1500 * 8
	err := p.readTraceLines(r, func(line string) error {
		ms, err := strconv.ParseInt(line, 10, 64)
		if err != nil || ms < 0 {
			return fmt.Errorf("%q: write milliseconds", line)
		}
		i := int(min(ms, MaxLength.Milliseconds()) / Step.Milliseconds())
		if i < len(p.Rates)-1 {
			return fmt.Errorf("%q: times must not descend", line)
		}
		if i >= countTimeSteps(MaxLength, Step) {
			return nil
		}
		for len(p.Rates) <= i {
			p.Rates = append(p.Rates, 0)
		}
		p.Rates[i] += unit.Rate(bits / Step.Seconds())
		return nil
	})
	return p, err
}

// ReadPerSecond reads a trace of lines "second,bytes in this second", from second 1 on. Missing
// seconds have rate 0.
func ReadPerSecond(r io.Reader) (Profile, error) {
	p := Profile{Step: time.Second}
	err := p.readTraceLines(r, func(line string) error {
		at, n, _ := strings.Cut(line, ",")
		second, err := strconv.Atoi(strings.TrimSpace(at))
		bytes, err2 := strconv.ParseFloat(strings.TrimSpace(n), 64)
		if err != nil || err2 != nil || !(bytes >= 0 && bytes < math.MaxInt64/16) || second <= len(p.Rates) {
			return fmt.Errorf("%q: write second,bytes, in ascending order from 1", line)
		}
		if second > countTimeSteps(MaxLength, p.Step) {
			return nil
		}
		for len(p.Rates) < second {
			p.Rates = append(p.Rates, 0)
		}
		p.Rates[second-1] = unit.Rate(8 * bytes)
		return nil
	})
	return p, err
}

// ReadTimed reads a trace of lines "second Mbit/s" in ascending order. The profile has samples of
// Step. Each has the last rate given before its end.
func ReadTimed(r io.Reader) (Profile, error) {
	p := Profile{Step: Step}
	last := -1.0
	err := p.readTraceLines(r, func(line string) error {
		f := strings.Fields(line)
		if len(f) != 2 {
			return fmt.Errorf("%q: write seconds and Mbit/s", line)
		}
		at, err := strconv.ParseFloat(f[0], 64)
		mbps, err2 := strconv.ParseFloat(f[1], 64)
		if err != nil || err2 != nil || !(at >= 0 && at > last) || !(mbps >= 0 && mbps < 1e6) {
			return fmt.Errorf("%q: write seconds and Mbit/s, in ascending order", line)
		}
		last = at
		i := int(min(at, MaxLength.Seconds()) / Step.Seconds())
		if i >= countTimeSteps(MaxLength, Step) {
			return nil
		}
		before := unit.Rate(mbps * 1e6) // the first rate holds from the start
		if n := len(p.Rates); n > 0 {
			before = p.Rates[n-1]
		}
		for len(p.Rates) < i {
			p.Rates = append(p.Rates, before)
		}
		p.Rates = append(p.Rates[:i], unit.Rate(mbps*1e6))
		return nil
	})
	return p, err
}

// readTraceLines passes each line to take. It returns an error if the profile then has no sample.
func (p *Profile) readTraceLines(r io.Reader, take func(string) error) error {
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		if line := strings.TrimSpace(in.Text()); line != "" {
			if err := take(line); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	if len(p.Rates) == 0 {
		return fmt.Errorf("trace is empty")
	}
	return nil
}
