// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"time"

	"mpbond/base/unit"
)

// Traffic is what a node sent and received over one shaped link, packet by packet.
type Traffic struct {
	Node string `json:"node"`
	Link string `json:"link"`
	// Gaps are the µs before each packet; the first gap counts from the start of recording.
	Gaps []int64 `json:"gaps_us"`
	// Sizes are IP bytes, negative for received packets. Sent packets are recorded as they enter
	// the link's queue, which is in the device. Packets that the full queue drops are not included:
	// a radio would never send them.
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

// coarseStep is how far apart packets may be that coarsened merges. It is a tenth of the shortest
// gap that any radio model or sample of rates resolves.
const coarseStep = 10 * time.Millisecond

// coarsened returns the traffic with at most two packets for those within coarseStep of the first
// of them, at the times of the first and the last. A minute then has some thousand packets at any
// rate. Bytes of each direction and every gap over coarseStep stay the same, also relative to other
// links. So the energy of a radio stays the same if its model resolves no shorter gaps.
func (t Traffic) coarsened() Traffic {
	var log trafficLog
	var first, last time.Duration
	var sent, received, n int
	flush := func() {
		switch {
		case n == 1:
			log.logTrafficPacket(first, sent-received)
		case sent == 0: // each time needs a packet
			log.logTrafficPacket(first, -1)
			log.logTrafficPacket(last, 1-received)
		case received == 0:
			log.logTrafficPacket(first, 1)
			log.logTrafficPacket(last, sent-1)
		default:
			log.logTrafficPacket(first, sent)
			log.logTrafficPacket(last, -received)
		}
		sent, received, n = 0, 0, 0
	}
	t.Each(func(at time.Duration, size unit.Bytes, up bool) {
		if n > 0 && at-first > coarseStep {
			flush()
		}
		if n == 0 {
			first = at
		}
		last = at
		n++
		if up {
			sent += int(size)
		} else {
			received += int(size)
		}
	})
	if n > 0 {
		flush()
	}
	return Traffic{Node: t.Node, Link: t.Link, Gaps: log.gaps, Sizes: log.sizes}
}

// trafficLog records one end's packets in the emulator's thread.
type trafficLog struct {
	last  time.Duration
	gaps  []int64
	sizes []int32
}

func (l *trafficLog) logTrafficPacket(now time.Duration, size int) {
	gap := (now - l.last) / time.Microsecond
	l.last += gap * time.Microsecond // the rounding error counts next time
	l.gaps, l.sizes = append(l.gaps, int64(gap)), append(l.sizes, int32(size))
}

// takeTrafficLogs returns the recorded packets and continues recording.
func (d *daemon) takeTrafficLogs() (all []Traffic) {
	d.emu.runInEmulatorLoop(func(now time.Duration) {
		for _, l := range d.links {
			ends := d.spec.Topology.Link[l.name].Ends
			for end := range l.traffic {
				if d.emu.recording {
					all = append(all, Traffic{ends[end], l.name, l.traffic[end].gaps, l.traffic[end].sizes})
				}
				l.traffic[end] = trafficLog{last: now}
			}
		}
		d.emu.recording = true
	})
	return all
}

// Traffic returns what both ends of each shaped link sent and received since the last call. The
// first call starts recording.
func (l *Lab) Traffic() ([]Traffic, error) {
	a, err := l.sendDaemonRequest(request{Op: "traffic"})
	return a.Traffic, err
}

// recordTraffic starts recording packets if r is nil, or puts those of primary and helpers into r.
// It does nothing unless the spec asks for it. Transfers of fixed length have many packets and are
// coarsened.
func (s *session) recordTraffic(b *Bench, r *Result) error {
	if !s.spec.Traffic {
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
		if s.spec.Length > 0 {
			t = t.coarsened()
		}
		r.Traffic = append(r.Traffic, t)
	}
	return nil
}
