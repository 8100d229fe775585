// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/link/wire"
)

// subflowTable holds the subflows of a bond, by rising ID. The parts of the bond share one table,
// and keep a *subflow only while it is in the table. Not safe for concurrent use.
type subflowTable struct{ list []*subflow }

// subflowByID returns the subflow of that ID, or nil.
func (t *subflowTable) subflowByID(id wire.SubflowID) *subflow {
	for _, p := range t.list {
		if p.id == id {
			return p
		}
	}
	return nil
}

// insertSubflow adds a subflow of a new ID.
func (t *subflowTable) insertSubflow(p *subflow) {
	at := len(t.list)
	for at > 0 && t.list[at-1].id > p.id {
		at--
	}
	t.list = append(t.list, nil)
	copy(t.list[at+1:], t.list[at:])
	t.list[at] = p
}

// deleteSubflow removes the subflow of that ID and returns it, or nil if there is none.
func (t *subflowTable) deleteSubflow(id wire.SubflowID) *subflow {
	for i, p := range t.list {
		if p.id == id {
			t.list = append(t.list[:i], t.list[i+1:]...)
			return p
		}
	}
	return nil
}

// hasOtherLive reports whether a subflow other than p is not silent.
func (t *subflowTable) hasOtherLive(p *subflow) bool {
	for _, q := range t.list {
		if q != p && !q.isSilent() {
			return true
		}
	}
	return false
}

// hasIdleExcept reports whether a subflow other than the one of that ID could take a segment now.
func (t *subflowTable) hasIdleExcept(id wire.SubflowID) bool {
	for _, p := range t.list {
		if p.id != id && p.idle && !p.isSilent() {
			return true
		}
	}
	return false
}

// framesInFlight returns how many frames of all subflows are not acknowledged.
func (t *subflowTable) framesInFlight() (n int) {
	for _, p := range t.list {
		n += p.inFlight.len()
	}
	return n
}

// hasLowLatency reports whether a subflow counts as low-latency. If it fails its data moves to
// another one, which must have no long queue.
func (t *subflowTable) hasLowLatency(now time.Time) bool {
	for _, p := range t.list {
		if now.Before(p.lowLatencyUntil) {
			return true
		}
	}
	return false
}

// probeTarget returns an idle subflow that must be probed, or nil.
func (t *subflowTable) probeTarget() *subflow {
	for _, p := range t.list {
		if p.probeDue && p.idle {
			return p
		}
	}
	return nil
}

// hasOverdue reports whether a helped subflow has held bytes that another one could carry for
// overdueAfter: it is slower than estimated, or its rate was limited since.
func (t *subflowTable) hasOverdue(now time.Time) bool {
	for _, p := range t.list {
		if !p.est.Helped || p.inFlight.recallable == 0 {
			continue
		}
		if n := p.est.EstimateAt(now); n.Overdue > overdueAfter || p.est.LocalHop().PacingLimit > 0 && n.PAD > overdueAfter {
			return true
		}
	}
	return false
}
