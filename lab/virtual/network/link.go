// SPDX-License-Identifier: Apache-2.0

package network

import (
	"sort"
	"time"

	"mpbond/base/unit"
)

// RateStep is a rate from a time on; 0 holds the queue.
type RateStep struct {
	At   time.Duration `json:"at"`
	Rate unit.Rate     `json:"rate"`
}

// Link is one direction of a link. Rates are of IP packets.
type Link struct {
	// Rates has rising times; the first is 0.
	Rates []RateStep    `json:"rates"`
	Delay time.Duration `json:"delay"`
	// Jitter is the largest extra delay of a packet, uniformly distributed. Packets keep their
	// order unless Reorders.
	Jitter   time.Duration `json:"jitter,omitempty"`
	Reorders bool          `json:"reorders,omitempty"`
	// Queue is the drop-tail limit, with the packet that is being sent.
	Queue unit.Bytes `json:"queue"`
	// Loss is the share of packets lost at random after the queue.
	Loss float64 `json:"loss,omitempty"`
	// Outages have rising times. All packets that would leave in one are lost.
	Outages []Outage `json:"outages,omitempty"`
}

// Outage is a time in which a link loses everything.
type Outage struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

// isOutAt reports whether a packet that leaves at t is lost.
func (l *Link) isOutAt(t time.Duration) bool {
	i := sort.Search(len(l.Outages), func(i int) bool { return l.Outages[i].To > t })
	return i < len(l.Outages) && l.Outages[i].From <= t
}

// rateIndexAt returns the index of the rate in force at t. hint is where to begin to search.
func (l *Link) rateIndexAt(t time.Duration, hint int) int {
	for hint > 0 && l.Rates[hint].At > t {
		hint--
	}
	for hint+1 < len(l.Rates) && l.Rates[hint+1].At <= t {
		hint++
	}
	return hint
}

// span is a range of a byte stream.
type span struct{ from, to uint64 }

// packet is one packet of a TCP connection on its way.
type packet struct {
	route []*line
	hop   int
	to    *tcpEnd
	size  unit.Bytes

	seq    uint64
	length int
	// Acknowledgement: the next byte expected, ranges beyond it, the room for more.
	ack       uint64
	sacks     [3]span
	sackCount int
	window    uint64
	sentAt    time.Duration // the sender's time stamp
	echo      time.Duration // the time stamp that is returned
	isProbe   bool          // asks for an acknowledgement
}

// line is a running Link.
type line struct {
	Link
	sim    *sim
	freeAt time.Duration // when the last packet given to it has left
	last   time.Duration // when that arrives
	hint   int

	queue  []departure // packets that have not left, oldest first
	head   int
	queued unit.Bytes
	arrive func(*packet)

	carried, dropped, lost unit.Bytes
}

// departure is when a packet leaves the queue.
type departure struct {
	at   time.Duration
	size unit.Bytes
}

func newRunningLine(s *sim, l Link) *line {
	n := &line{Link: l, sim: s}
	n.arrive = func(p *packet) {
		if p.hop++; p.hop < len(p.route) {
			p.route[p.hop].enqueuePacket(p)
			return
		}
		p.to.receiveTCPPacket(p)
	}
	return n
}

// enqueuePacket queues a packet, or drops it if the queue is full, and schedules its arrival.
func (l *line) enqueuePacket(p *packet) {
	now := l.sim.now
	for l.head < len(l.queue) && l.queue[l.head].at <= now {
		l.queued -= l.queue[l.head].size
		l.head++
	}
	if l.head > 256 && 2*l.head > len(l.queue) {
		l.queue = l.queue[:copy(l.queue, l.queue[l.head:])]
		l.head = 0
	}
	if l.queued+p.size > l.Queue && l.queued > 0 {
		l.dropped += p.size
		l.sim.recyclePacket(p)
		return
	}
	left := l.lineDepartureTime(now, p.size)
	l.queue = append(l.queue, departure{left, p.size})
	l.queued += p.size
	if left == never {
		l.sim.recyclePacket(p)
		return
	}
	if l.isOutAt(left) || l.Loss > 0 && l.sim.random.Float64() < l.Loss {
		l.lost += p.size
		l.sim.recyclePacket(p)
		return
	}
	at := left + l.Delay
	if l.Jitter > 0 {
		at += time.Duration(l.sim.random.Float64() * float64(l.Jitter))
	}
	if !l.Reorders {
		at = max(at, l.last)
		l.last = at
	}
	l.carried += p.size
	l.sim.scheduleTask(at, l.arrive, p)
}

// lineDepartureTime returns when size bytes that are ready now have left, never if that does not
// happen.
func (l *line) lineDepartureTime(now time.Duration, size unit.Bytes) time.Duration {
	if l.freeAt == never {
		return never
	}
	t := max(now, l.freeAt)
	l.hint = l.rateIndexAt(t, l.hint)
	l.freeAt = l.transmissionEnd(t, l.hint, float64(size)*8)
	return l.freeAt
}

// transmissionEnd returns when that many bits have left that begin to leave at t, when rate i is in
// force; never if they do not.
func (l *Link) transmissionEnd(t time.Duration, i int, bits float64) time.Duration {
	for ; ; i++ {
		r := l.Rates[i].Rate
		last := i+1 == len(l.Rates)
		if r > 0 {
			end := t + time.Duration(bits/float64(r)*1e9)
			if last || end <= l.Rates[i+1].At {
				return end
			}
			bits -= float64(r) * (l.Rates[i+1].At - t).Seconds()
		}
		if last {
			return never
		}
		t = l.Rates[i+1].At
	}
}
