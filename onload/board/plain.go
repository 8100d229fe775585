// SPDX-License-Identifier: Apache-2.0

package board

import (
	"time"

	"mpbond/base/unit"
)

// DefaultChunk is the size of a chunk of the work queue: the compromise of COMBINE between the cost
// of a request and the wait for the last chunk.
const DefaultChunk = 512 * unit.KB

// greedyScheduler is GRD of 3GOL: an idle path takes the next item; if none is left it copies the
// oldest unfinished one. The first copy wins.
type greedyScheduler struct{}

// Name implements Scheduler.
func (greedyScheduler) Name() string                                { return "grd" }
func (greedyScheduler) NoteDelivery(int, unit.Bytes, time.Duration) {}

// Pick implements Scheduler.
func (greedyScheduler) Pick(v *View, _ int) Decision {
	switch {
	case len(v.Waiting) > 0:
		return Decision{Action: Take, Reason: NextItem}
	case len(v.Running) > 0:
		return Decision{Action: Copy, Job: v.Running[0].ID, Reason: Oldest}
	}
	return Decision{Reason: NothingLeft}
}

// roundRobin is RR of 3GOL: item i belongs to path i mod N of the paths that are up.
type roundRobin struct{}

// Name implements Scheduler.
func (roundRobin) Name() string                                { return "rr" }
func (roundRobin) NoteDelivery(int, unit.Bytes, time.Duration) {}

// Pick implements Scheduler.
func (roundRobin) Pick(v *View, path int) Decision {
	turn := 0 // position of this path among those that are up
	for _, p := range v.Paths[:path] {
		if p.Up {
			turn++
		}
	}
	n := v.countUsablePaths()
	for i, item := range v.Waiting {
		if item.Index%n == turn {
			return Decision{Action: Take, WaitingIndex: i, Reason: ItsTurn}
		}
	}
	return waitDecision(v, NotItsItem)
}

// waitDecision returns the decision to wait.
func waitDecision(v *View, r Reason) Decision {
	if len(v.Waiting) == 0 {
		r = NothingLeft
	}
	return Decision{Reason: r}
}

// newestWeight is the weight of the last sample in the rate that MIN assumes.
const newestWeight = 0.75

// leastTime is MIN of 3GOL: the first N items go to the N paths in turn; each further one is queued
// for good at the path with the least (queued + size) / rate. Once all paths have a rate, all known
// items are queued, in order; until then one at a time, among the paths with a rate. An item of
// unknown size counts as the mean of the known sizes.
type leastTime struct {
	rates []float64   // bytes per second
	queue map[int]int // item index to path
}

// Name implements Scheduler.
func (*leastTime) Name() string { return "min" }

// NoteDelivery implements Scheduler.
func (m *leastTime) NoteDelivery(path int, n unit.Bytes, took time.Duration) {
	if took <= 0 {
		return
	}
	m.rates = append(m.rates, make([]float64, max(0, path+1-len(m.rates)))...)
	sample := float64(n) / took.Seconds()
	if old := m.rates[path]; old > 0 {
		sample = newestWeight*sample + (1-newestWeight)*old
	}
	m.rates[path] = sample
}

// Pick implements Scheduler.
func (m *leastTime) Pick(v *View, path int) Decision {
	if m.queue == nil {
		m.queue = map[int]int{}
	}
	m.rates = append(m.rates, make([]float64, max(0, len(v.Paths)-len(m.rates)))...)
	index, allKnown := -1, m.allRatesKnown(v)
	for i, item := range v.Waiting {
		at, queued := m.queue[item.Index]
		if !queued || !v.Paths[at].Up {
			at = m.findLeastTimePath(v, item, path)
			m.queue[item.Index] = at
		}
		if at == path && index < 0 {
			index = i
		}
		if index >= 0 && !allKnown {
			break
		}
	}
	if index < 0 {
		return waitDecision(v, NotItsItem)
	}
	return Decision{Action: Take, WaitingIndex: index, Reason: LeastTime}
}

// allRatesKnown reports whether each usable path has a rate.
func (m *leastTime) allRatesKnown(v *View) bool {
	for p, of := range v.Paths {
		if of.Up && m.rates[p] == 0 {
			return false
		}
	}
	return true
}

// findLeastTimePath returns the path that would finish an item first, or the idle path if no rate
// is known.
func (m *leastTime) findLeastTimePath(v *View, item Item, idle int) int {
	if n := len(v.Paths); item.Index < n && v.Paths[item.Index].Up {
		return item.Index
	}
	queued := make([]unit.Bytes, len(v.Paths))
	for _, j := range v.Running {
		queued[j.Path] += v.queuedSize(j.Remaining())
	}
	for _, w := range v.Waiting {
		if at, ok := m.queue[w.Index]; ok {
			queued[at] += v.queuedSize(w.Size())
		}
	}
	best, soonest := idle, 0.0
	for p, of := range v.Paths {
		if !of.Up || m.rates[p] == 0 {
			continue
		}
		if t := float64(queued[p]+v.queuedSize(item.Size())) / m.rates[p]; soonest == 0 || t < soonest {
			best, soonest = p, t
		}
	}
	return best
}

// queuedSize returns the bytes that an item counts in a queue. A negative size is unknown and
// counts as the mean.
func (v *View) queuedSize(left unit.Bytes) unit.Bytes {
	if left < 0 {
		left = v.MeanSize
	}
	return max(1, left)
}

// workQueue is the scheduler of COMBINE: an idle path takes the next chunk.
type workQueue struct{ chunk unit.Bytes }

// Name implements Scheduler.
func (workQueue) Name() string                                { return "queue" }
func (workQueue) NoteDelivery(int, unit.Bytes, time.Duration) {}

// Pick implements Scheduler.
func (q workQueue) Pick(v *View, _ int) Decision {
	if len(v.Waiting) == 0 {
		return Decision{Reason: NothingLeft}
	}
	return Decision{Action: Take, Size: q.chunk, Reason: NextChunk}
}
