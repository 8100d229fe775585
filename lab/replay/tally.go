package replay

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
)

// Result tells a transfer by the sender's events, a recorded one as a replayed
// one.
type Result struct {
	Scheduler string `json:"scheduler"` // "recorded" for the recording
	// Seconds from the first segment until the sender knew that the last byte
	// had arrived.
	Seconds float64      `json:"seconds"`
	Paths   []PathResult `json:"paths"`
	// Apart is the time between the ends of the subflows that brought anything.
	Apart float64 `json:"ended_apart_seconds"`
	// Wasted bytes were sent again, by cause: eta, silent, lost, copy.
	Wasted map[string]unit.Bytes `json:"wasted_bytes"`
	// Decisions counts the scheduler's decisions by their reasons.
	Decisions map[string]int `json:"decisions"`
}

// PathResult is the part of a path.
type PathResult struct {
	ID     uint32     `json:"path"`
	Device string     `json:"device"`
	Bytes  unit.Bytes `json:"bytes"` // given to it
	Share  float64    `json:"share"`
	// Ended is when its last bytes that were new to the other end were
	// acknowledged, 0 if there were none.
	Ended float64 `json:"ended_seconds"`
}

// tally follows a sender's events.
type tally struct {
	zero   time.Time // of the first segment
	last   time.Time // the newest acknowledgement of new bytes
	left   unit.Bytes
	got    map[uint64]*parts
	flight map[uint32][]trace.Event // segments not acknowledged
	out    Result
}

func newTally(r *Recording) *tally {
	t := &tally{got: map[uint64]*parts{}, flight: map[uint32][]trace.Event{},
		out: Result{Wasted: map[string]unit.Bytes{}, Decisions: map[string]int{}}}
	for _, s := range r.Streams {
		t.left += s.Size
	}
	for _, p := range r.Paths {
		t.out.Paths = append(t.out.Paths, PathResult{ID: uint32(p.ID), Device: p.Device})
	}
	return t
}

func (t *tally) path(id uint32) *PathResult {
	for i := range t.out.Paths {
		if t.out.Paths[i].ID == id {
			return &t.out.Paths[i]
		}
	}
	t.out.Paths = append(t.out.Paths, PathResult{ID: id})
	return &t.out.Paths[len(t.out.Paths)-1]
}

func (t *tally) add(e trace.Event) {
	switch e.Kind {
	case trace.Segment:
		if t.zero.IsZero() {
			t.zero = e.Time()
		}
		t.path(e.Path).Bytes += e.Length
		t.flight[e.Path] = append(t.flight[e.Path], e)
		if e.Reason == "copy" {
			t.out.Wasted["copy"] += e.Length
		}
	case trace.Ack:
		q := t.flight[e.Path]
		for len(q) > 0 && q[0].Count <= e.Offset {
			t.arrived(q[0], e)
			q = q[1:]
		}
		t.flight[e.Path] = q
	case trace.Reinject:
		t.out.Wasted[e.Reason] += e.Length
	case trace.Decision:
		t.out.Decisions[e.Reason]++
	}
}

// arrived notes a segment as acknowledged by e.
func (t *tally) arrived(s, e trace.Event) {
	p := t.got[s.Stream]
	if p == nil {
		p = &parts{}
		t.got[s.Stream] = p
	}
	if n := p.add(s.Offset, s.Offset+uint64(s.Length)); n > 0 {
		t.left -= n
		t.last = e.Time()
		t.path(e.Path).Ended = e.Time().Sub(t.zero).Seconds()
	}
}

// complete tells that all bytes have arrived.
func (t *tally) complete() bool { return t.left <= 0 }

func (t *tally) result(scheduler string) Result {
	r := t.out
	r.Scheduler = scheduler
	if !t.last.IsZero() {
		r.Seconds = t.last.Sub(t.zero).Seconds()
	}
	var all unit.Bytes
	first, last := 0.0, 0.0
	for _, p := range r.Paths {
		all += p.Bytes
		if p.Ended > 0 {
			if first == 0 || p.Ended < first {
				first = p.Ended
			}
			last = max(last, p.Ended)
		}
	}
	for i := range r.Paths {
		r.Paths[i].Share = float64(r.Paths[i].Bytes) / float64(max(all, 1))
	}
	r.Apart = last - first
	return r
}

// parts are the pieces of a stream that have arrived, in order and apart.
type parts struct{ list [][2]uint64 }

// add adds a piece and returns how much of it is new.
func (p *parts) add(from, to uint64) unit.Bytes {
	if from >= to {
		return 0
	}
	fresh := to - from
	i := 0
	for i < len(p.list) && p.list[i][1] < from {
		i++
	}
	j := i
	for ; j < len(p.list) && p.list[j][0] <= to; j++ {
		q := p.list[j]
		if a, b := max(q[0], from), min(q[1], to); a < b {
			fresh -= b - a
		}
	}
	if j > i {
		from, to = min(from, p.list[i][0]), max(to, p.list[j-1][1])
	}
	p.list = slices.Replace(p.list, i, j, [2]uint64{from, to})
	return unit.Bytes(fresh)
}
