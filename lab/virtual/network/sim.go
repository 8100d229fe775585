// SPDX-License-Identifier: Apache-2.0

package network

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/event"
)

// never is a time that is not reached.
const never = time.Duration(math.MaxInt64)

// sim is the clock of one run: events in virtual time, and the randomness of its links. Times are
// since the beginning of the run.
type sim struct {
	now    time.Duration
	events event.Queue[task]
	random *rand.Rand
	spare  []*packet
	count  int
}

// task is an event: do is called with p.
type task struct {
	do func(*packet)
	p  *packet
}

// newSimulation returns a sim whose random losses and jitter depend on the network's seed and on
// drawSeed.
func newSimulation(seed, drawSeed uint64) *sim {
	return &sim{random: rand.New(rand.NewPCG(seed, 21+drawSeed))}
}

// scheduleTask calls do with p at time t.
func (s *sim) scheduleTask(t time.Duration, do func(*packet), p *packet) {
	s.events.Push(max(t, s.now), task{do, p})
}

// handleNext handles one event. It reports false if there is none before the limit.
func (s *sim) handleNext(limit time.Duration) bool {
	if s.events.Len() == 0 || s.events.Next() > limit {
		return false
	}
	at, e := s.events.Pop()
	s.now = at
	s.count++
	e.do(e.p)
	return true
}

// allocatePacket returns an empty packet.
func (s *sim) allocatePacket() *packet {
	if n := len(s.spare); n > 0 {
		p := s.spare[n-1]
		s.spare = s.spare[:n-1]
		*p = packet{}
		return p
	}
	return &packet{}
}

// recyclePacket returns a packet that is no longer used, for allocatePacket.
func (s *sim) recyclePacket(p *packet) { s.spare = append(s.spare, p) }

// timer calls fire once when it is due. It may be set again at any time.
type timer struct {
	sim    *sim
	fire   func()
	due    time.Duration // never: not set
	queued time.Duration // the earliest event that is queued; never: none
	ring   func(*packet)
}

func newSimTimer(s *sim, fire func()) *timer {
	t := &timer{sim: s, fire: fire, due: never, queued: never}
	t.ring = func(*packet) { t.handleTimerEvent() }
	return t
}

// setDueTime makes the timer due at a time.
func (t *timer) setDueTime(at time.Duration) {
	t.due = at
	if at != never && at < t.queued {
		t.queued = max(at, t.sim.now)
		t.sim.scheduleTask(at, t.ring, nil)
	}
}

// clearDueTime unsets the timer.
func (t *timer) clearDueTime() { t.due = never }

// handleTimerEvent handles a queued event: it fires the timer if it is due, or queues the next
// event.
func (t *timer) handleTimerEvent() {
	if t.sim.now != t.queued {
		return // an earlier event has replaced it
	}
	t.queued = never
	switch {
	case t.due == never:
	case t.due > t.sim.now:
		t.setDueTime(t.due)
	default:
		t.due = never
		t.fire()
	}
}
