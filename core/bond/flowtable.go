// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// flowTable holds the datagram flows of a bond and their queues. It pins each flow to a subflow,
// orders the turns of queued flows, fills segments with datagrams, delivers received ones, and ends
// unused flows. It bounds the bytes that wait in each direction and takes their memory from the
// budget. Datagrams that do not fit are dropped. Not safe for concurrent use.
type flowTable struct {
	filter   *subflowFilter
	classes  *classTable
	control  *controlQueue
	memory   *memoryBudget
	timer    *wakeTimer
	trace    *tracer
	stats    *Stats
	accepts  bool // the other end opens flows
	maxFlows int

	all       map[wire.FlowID]*Flow
	lastID    wire.FlowID  // highest ID, at the opening end
	seen      replayWindow // IDs at the accepting end; each is used once
	accepted  []*Flow
	changed   []*Flow
	ready     []*leg // legs with queued frames, in turn; including those of ended flows
	outBytes  unit.Bytes
	inBytes   unit.Bytes
	nextCheck time.Time // when to look for unused flows
}

// openDatagramFlow opens a flow; see Bond.OpenFlow.
func (t *flowTable) openDatagramFlow(redundant bool, now time.Time) (*Flow, error) {
	if !t.permitsNewFlow(now) {
		return nil, wire.Reset{Code: wire.CodeLimit, Text: fmt.Sprintf("the limit of %d datagram flows is reached",
			len(t.all))}
	}
	t.lastID++
	return t.addDatagramFlow(t.lastID, redundant, now), nil
}

// addDatagramFlow adds a flow of that ID.
func (t *flowTable) addDatagramFlow(id wire.FlowID, redundant bool, now time.Time) *Flow {
	f := &Flow{id: id, table: t, redundant: redundant, lastUsed: now, onlyDNS: true}
	for i := range f.legs {
		f.legs[i].flow = f
	}
	if t.all == nil {
		t.all = map[wire.FlowID]*Flow{}
	}
	t.all[id] = f
	t.stats.FlowsTotal++
	t.trace.emitTimestamped(now, trace.Event{Kind: trace.FlowOpen, Flow: uint64(id)})
	t.scheduleFlowExpiry(now)
	return f
}

// nextAcceptedFlow returns a flow that the other end has opened, or nil.
func (t *flowTable) nextAcceptedFlow() *Flow {
	if len(t.accepted) == 0 {
		return nil
	}
	f := t.accepted[0]
	t.accepted = t.accepted[1:]
	return f
}

// nextChangedFlow returns a flow that has a datagram to receive or has ended since it was last
// returned, or nil.
func (t *flowTable) nextChangedFlow() *Flow {
	if len(t.changed) == 0 {
		return nil
	}
	f := t.changed[0]
	t.changed = t.changed[1:]
	f.inChanged = false
	return f
}

// notifyFlowChange makes nextChangedFlow return a flow.
func (t *flowTable) notifyFlowChange(f *Flow) {
	if !f.inChanged {
		f.inChanged = true
		t.changed = append(t.changed, f)
	}
}

// permitsNewFlow reports whether one more flow may exist. It may end an unused flow for that.
func (t *flowTable) permitsNewFlow(now time.Time) bool {
	return len(t.all) < t.maxFlows || t.evictUnused(now)
}

// failAllFlows ends all flows at this end.
func (t *flowTable) failAllFlows(why wire.Reset, now time.Time) {
	for _, f := range t.all {
		f.failDatagramFlow(why, now)
	}
}

// collectGroups adds the groups of flows, and of queued legs of ended flows, to a set.
func (t *flowTable) collectGroups(used map[wire.GroupID]bool) {
	for _, f := range t.all {
		used[f.group] = true
	}
	for _, l := range t.ready {
		used[l.flow.group] = true
	}
}

// applyFlowClasses unpins legs from subflows that are no longer permitted, and sorts their turns.
// Legs with an empty queue are checked when they send.
func (t *flowTable) applyFlowClasses() {
	for _, l := range t.ready {
		if l.subflow != nil && !t.classes.findGroupClass(l.flow.group).permitsSubflow(l.subflow.id) {
			l.subflow = nil
		}
	}
	if t.classes.ranked {
		legs := t.ready
		t.ready = nil
		for _, l := range legs {
			t.enqueueLeg(l)
		}
	}
}

// endRetiredFlows ends the flows of groups that the other end has retired.
func (t *flowTable) endRetiredFlows(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(t.all)) {
		if f := t.all[id]; t.classes.isGroupRetired(f.group) {
			f.failDatagramFlow(wire.Reset{Code: wire.CodeClosed, Text: "the other end has ended it"}, now)
		}
	}
}

// evictUnused makes room by ending the flow unused for longest, if that is long enough.
func (t *flowTable) evictUnused(now time.Time) bool {
	var oldest *Flow
	for _, f := range t.all {
		if oldest == nil || f.lastUsed.Before(oldest.lastUsed) {
			oldest = f
		}
	}
	if oldest == nil || now.Sub(oldest.lastUsed) < dnsIdleTimeout {
		return false
	}
	oldest.End(wire.CodeClosed, "it was unused, and another flow needed room", now)
	return true
}

// expireUnusedFlows drops expired datagrams and ends unused flows.
func (t *flowTable) expireUnusedFlows(now time.Time) {
	t.dropExpired(now)
	if now.Before(t.nextCheck) {
		return
	}
	for _, f := range t.all {
		limit := flowIdleTimeout
		if f.onlyDNS {
			limit = dnsIdleTimeout
		}
		if t.accepts {
			limit += idleGrace
		}
		if now.Sub(f.lastUsed) > limit {
			f.End(wire.CodeClosed, "it was unused for too long", now)
		}
	}
	t.nextCheck = now.Add(dnsIdleTimeout / 2)
}

// scheduleFlowExpiry sets the timer for the next expiry.
func (t *flowTable) scheduleFlowExpiry(now time.Time) {
	if len(t.ready) > 0 {
		t.timer.requestWakeAt(now.Add(maxQueueTime))
	}
	if len(t.all) > 0 {
		if t.nextCheck.Before(now) {
			t.nextCheck = now.Add(dnsIdleTimeout / 2)
		}
		t.timer.requestWakeAt(t.nextCheck)
	}
}

// receiveFlowEnd ends a flow that the other end has ended.
func (t *flowTable) receiveFlowEnd(payload []byte, now time.Time) error {
	e, err := wire.ParseFlowEnd(payload)
	if err != nil {
		return err
	}
	if f := t.all[e.Flow]; f != nil {
		f.failDatagramFlow(wire.Reset{Code: e.Code, Text: e.Text}, now)
	} else if t.accepts {
		t.seen.recordIfNew(uint64(e.Flow)) // it overtook the frame that would open the flow
	}
	return nil
}

// receiveFlowRefused passes a refusal to its flow.
func (t *flowTable) receiveFlowRefused(payload []byte, _ time.Time) error {
	r, err := wire.ParseFlowRefused(payload)
	if f := t.all[r.Flow]; err == nil && f != nil {
		f.deliverDatagram(ReceivedDatagram{Addr: r.Addr, Refused: true, Code: r.Code, MTU: r.MTU, Text: r.Text})
	}
	return err
}

// dispatchDatagram passes a datagram to its flow. At the accepting end it opens the flow if needed.
// It reports whether the datagram is new.
func (t *flowTable) dispatchDatagram(d wire.Datagram, now time.Time) (isNew bool, err error) {
	f := t.all[d.Flow]
	if f == nil {
		if !t.accepts && d.Flow > t.lastID {
			return false, fmt.Errorf("flow %d was never opened: %w", d.Flow, wire.ErrMalformed)
		}
		if !t.accepts || !t.seen.recordIfNew(uint64(d.Flow)) {
			t.control.queueNotice(wire.FlowEnd{Flow: d.Flow, Code: wire.CodeClosed, Text: "it has ended"})
			return false, nil
		}
		if t.classes.isGroupRetired(d.Group) {
			return false, nil // a late frame of a retired group
		}
		if !t.permitsNewFlow(now) {
			t.control.queueNotice(wire.FlowEnd{Flow: d.Flow, Code: wire.CodeLimit,
				Text: fmt.Sprintf("the limit of %d datagram flows is reached", len(t.all))})
			return false, nil
		}
		f = t.addDatagramFlow(d.Flow, d.Redundant, now)
		f.group = d.Group
		t.accepted = append(t.accepted, f)
	}
	if !f.received.recordIfNew(d.Number) {
		f.stats.Duplicate++
		t.stats.Duplicate += unit.Bytes(len(d.Bytes))
		return false, nil
	}
	f.recordFlowUse(d.Addr, now)
	f.deliverDatagram(ReceivedDatagram{Addr: d.Addr, Bytes: append([]byte{}, d.Bytes...)})
	return true, nil
}

// FlowInfo describes a flow, for status output.
type FlowInfo struct {
	ID        wire.FlowID
	Subflow   wire.SubflowID // 0: none yet
	Second    wire.SubflowID // of a redundant flow
	Redundant bool
	LastUsed  time.Time
	User      any
	FlowStats
}

// describeFlows describes at most limit flows, the most recently used first.
func (t *flowTable) describeFlows(limit int) []FlowInfo {
	list := make([]FlowInfo, 0, len(t.all))
	for _, f := range t.all {
		i := FlowInfo{ID: f.id, Redundant: f.redundant, LastUsed: f.lastUsed, User: f.User, FlowStats: f.stats}
		for l := range f.legs {
			if p := f.legs[l].subflow; p != nil {
				i.Subflow, i.Second = cmp.Or(i.Subflow, p.id), p.id
			}
		}
		if i.Second == i.Subflow {
			i.Second = 0
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(x, y FlowInfo) int {
		return cmp.Or(y.LastUsed.Compare(x.LastUsed),
			cmp.Compare(x.ID, y.ID))
	})
	return list[:min(len(list), limit)]
}
