// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"slices"

	"mpbond/base/unit"
)

// Log records the requests of a script, by index. Times count from the start of the script.
type Log struct {
	Requests []Outcome `json:"requests"`
	// Seconds is how long the script took.
	Seconds float64 `json:"seconds"`
}

// Outcome records one request. Start is when it was made: a connection to its host was free, or one
// more was opened. FirstByte is when its answer began, and End when it was complete; both
// are 0 if it was not. Down and Up are the bytes that were fetched and sent.
type Outcome struct {
	Start     float64    `json:"start_seconds"`
	FirstByte float64    `json:"first_byte_seconds,omitempty"`
	End       float64    `json:"end_seconds,omitempty"`
	Up        unit.Bytes `json:"up,omitempty"`
	Down      unit.Bytes `json:"down,omitempty"`
}

// IsComplete reports whether the whole answer arrived.
func (o Outcome) IsComplete() bool { return o.End > 0 }

// Check returns an error unless the log fits the script: all requests are complete, with all their
// bytes, unless the script has a length.
func (l Log) Check(s Script) error {
	if len(l.Requests) != len(s.Requests) {
		return fmt.Errorf("%s: %d of %d requests have an outcome", s.App, len(l.Requests), len(s.Requests))
	}
	for i, o := range l.Requests {
		switch want := s.Requests[i]; {
		case !o.IsComplete() && s.Length > 0:
		case !o.IsComplete():
			return fmt.Errorf("%s: request %d is not complete", s.App, i)
		case o.Up != want.Up || o.Down != want.Down:
			return fmt.Errorf("%s: request %d: %d and %d bytes instead of %d and %d", s.App, i, o.Up, o.Down, want.Up,
				want.Down)
		case o.Start < 0 || o.FirstByte < o.Start || o.End < o.FirstByte || o.End > l.Seconds:
			return fmt.Errorf("%s: request %d: its times contradict each other", s.App, i)
		}
	}
	return nil
}

// Bytes returns how many bytes were sent and fetched.
func (l Log) Bytes() (up, down unit.Bytes) {
	for _, o := range l.Requests {
		up, down = up+o.Up, down+o.Down
	}
	return up, down
}

// Goodput returns the bytes of both directions by the time in which any request was open, in bit/s.
// It is 0 if there was none.
func (l Log) Goodput() float64 {
	up, down := l.Bytes()
	busy := l.busyTime()
	if busy <= 0 {
		return 0
	}
	return 8 * float64(up+down) / busy
}

// busyTime returns for how many seconds at least one request was open.
func (l Log) busyTime() (total float64) {
	open := slices.Clone(l.Requests)
	open = slices.DeleteFunc(open, func(o Outcome) bool { return o.Up+o.Down == 0 && !o.IsComplete() })
	slices.SortFunc(open, func(a, b Outcome) int { return cmp.Compare(a.Start, b.Start) })
	until := 0.0
	for _, o := range open {
		end := o.End
		if !o.IsComplete() {
			end = l.Seconds
		}
		total += max(0, end-max(o.Start, until))
		until = max(until, end)
	}
	return total
}

// LoadTime returns when the last request was complete.
func (l Log) LoadTime() (last float64) {
	for _, o := range l.Requests {
		last = max(last, o.End)
	}
	return last
}

// FirstEnd returns when the first request was complete, 0 if it was not.
func (l Log) FirstEnd() float64 {
	if len(l.Requests) == 0 {
		return 0
	}
	return l.Requests[0].End
}

// RequestTimes returns how long each complete request took, in the order of the script.
func (l Log) RequestTimes() (all []float64) {
	for _, o := range l.Requests {
		if o.IsComplete() {
			all = append(all, o.End-o.Start)
		}
	}
	return all
}

// Playback is how media was played.
type Playback struct {
	StartUp float64 `json:"start_up_seconds"` // until playing began; the whole time if it did not
	Stalls  int     `json:"stalls"`
	Stalled float64 `json:"stalled_seconds"` // after it began
}

// Play plays the answers of a script with Media until the end of the log.
func (l Log) Play(m Media) Playback {
	segment, least := m.Segment.Seconds(), m.StartBuffer.Seconds()
	// ready[i] is when all segments up to i have arrived.
	var ready []float64
	for _, o := range l.Requests {
		if !o.IsComplete() {
			break
		}
		at := o.End
		if n := len(ready); n > 0 {
			at = max(at, ready[n-1])
		}
		ready = append(ready, at)
	}
	// bufferedAt returns when media up to a position had arrived, or the end of the log.
	bufferedAt := func(position float64) float64 {
		for i, at := range ready {
			if float64(i+1)*segment >= position {
				return at
			}
		}
		return l.Seconds
	}
	p := Playback{StartUp: bufferedAt(least)}
	now := p.StartUp
	for i := range l.Requests {
		if now >= l.Seconds {
			break
		}
		played := float64(i) * segment
		if i >= len(ready) || ready[i] > now { // the next segment is missing
			resume := min(bufferedAt(played+least), l.Seconds)
			p.Stalls++
			p.Stalled += resume - now
			now = resume
		}
		now += segment
	}
	return p
}
