package lab

import (
	"time"

	"mpbond/unit"
)

// Traffic is what a node sent and received over one emulated link, packet by
// packet.
type Traffic struct {
	Node string `json:"node"`
	Link string `json:"link"`
	// Gaps are the µs before each packet, of the first since recording began.
	Gaps []int64 `json:"gaps_us"`
	// Sizes are IP bytes, negative of packets that were received. Packets sent are
	// seen as they enter the link's queue, which is in the device: one for which it
	// has no room is never sent by a radio, and is not among them.
	Sizes []int32 `json:"sizes"`
}

// Each calls f with the time, size and direction of each packet.
func (t Traffic) Each(f func(at time.Duration, n unit.Bytes, sent bool)) {
	at := time.Duration(0)
	for i, n := range t.Sizes {
		at += time.Duration(t.Gaps[i]) * time.Microsecond
		f(at, unit.Bytes(max(n, -n)), n > 0)
	}
}

// coarseStep is what coarse leaves of times: a tenth of the longest gap that counts
// for energies, and of a sample of rates.
const coarseStep = 10 * time.Millisecond

// coarse returns the traffic with packets of one direction that were within
// coarseStep of the first of them as one, at its time: a minute is then some
// thousands, at any rate.
func (t Traffic) coarse() Traffic {
	c := Traffic{Node: t.Node, Link: t.Link}
	l := trafficLog{}
	var since [2]time.Duration
	in := [2]int{-1, -1} // where the packets of each direction go now
	t.Each(func(at time.Duration, n unit.Bytes, sent bool) {
		dir, size := 0, int(-n)
		if sent {
			dir, size = 1, int(n)
		}
		if in[dir] < 0 || at-since[dir] >= coarseStep {
			in[dir], since[dir] = len(l.sizes), at
			l.add(at, 0)
		}
		l.sizes[in[dir]] += int32(size)
	})
	c.Gaps, c.Sizes = l.gaps, l.sizes
	return c
}

// trafficLog is one end's, in the emulator's thread.
type trafficLog struct {
	last  time.Duration
	gaps  []int64
	sizes []int32
}

func (l *trafficLog) add(now time.Duration, size int) {
	gap := (now - l.last) / time.Microsecond
	l.last += gap * time.Microsecond // what is rounded off here counts next time
	l.gaps, l.sizes = append(l.gaps, int64(gap)), append(l.sizes, int32(size))
}

// traffic takes out what was recorded, and goes on recording from now on.
func (d *daemon) traffic() (all []Traffic) {
	d.emu.do(func(now time.Duration) {
		for _, l := range d.links {
			ends := d.spec.Topology.Link[l.name].Ends
			for end := range l.seen {
				if d.emu.recording {
					all = append(all, Traffic{ends[end], l.name, l.seen[end].gaps, l.seen[end].sizes})
				}
				l.seen[end] = trafficLog{last: now}
			}
		}
		d.emu.recording = true
	})
	return all
}

// Traffic returns what both ends of each emulated link sent and received since
// the last call, and begins anew. The first call begins it.
func (l *Lab) Traffic() ([]Traffic, error) {
	a, err := l.ask(request{Op: "traffic"})
	return a.Traffic, err
}

// record begins to record packets, if the plan asks for it, or puts those of
// primary and helpers into a result.
func (s *session) record(b *Bench, r *Result) error {
	if !s.plan.Traffic {
		return nil
	}
	all, err := b.Lab.Traffic()
	if err != nil || r == nil {
		return err
	}
	for _, t := range all {
		if t.Node == "server" {
			continue
		}
		if s.plan.Length > 0 {
			t = t.coarse()
		}
		r.Traffic = append(r.Traffic, t)
	}
	return nil
}
