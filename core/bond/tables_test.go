// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/link/wire"
)

func TestSubflowTable(t *testing.T) {
	var l subflowTable
	for _, id := range []wire.SubflowID{3, 1, 2} {
		l.insertSubflow(&subflow{id: id})
	}
	for i, p := range l.list {
		if p.id != wire.SubflowID(i+1) || l.subflowByID(p.id) != p {
			t.Errorf("subflow %d stands at %d", p.id, i)
		}
	}
	one, two, three := l.list[0], l.list[1], l.list[2]
	if l.hasIdleExcept(0) || l.probeTarget() != nil || l.hasLowLatency(start) || l.framesInFlight() != 0 {
		t.Error("something is said of subflows that do nothing")
	}
	one.idle, two.probeDue = true, true
	if !l.hasIdleExcept(2) || l.hasIdleExcept(1) || l.probeTarget() != nil {
		t.Error("subflow 1 alone is idle, subflow 2 alone is to be asked")
	}
	if two.idle = true; l.probeTarget() != two {
		t.Error("subflow 2 is to be asked and idle")
	}
	three.extendLowLatency(start.Add(time.Second))
	three.extendLowLatency(start)
	if !l.hasLowLatency(start) || l.hasLowLatency(start.Add(time.Second)) {
		t.Error("subflow 3 is of low latency for one second")
	}
	one.silentSince, two.silentSince = start, start
	if l.hasOtherLive(three) || !l.hasOtherLive(one) {
		t.Error("subflow 3 alone is alive")
	}
	one.recordSentFrame(10, sentFrame{frameType: wire.TypePing})
	if l.framesInFlight() != 1 || l.deleteSubflow(9) != nil || l.deleteSubflow(1) != one || l.framesInFlight() != 0 ||
		len(l.list) != 2 {
		t.Error("subflow 1 is still there")
	}
}

func TestStreamTable(t *testing.T) {
	var l streamTable
	one, two := &Stream{id: 1}, &Stream{id: 2}
	l.notifyStreamChange(one)
	l.notifyStreamChange(two)
	l.notifyStreamChange(one)
	if l.nextChangedStream() != one {
		t.Error("the first that changed is not the first")
	}
	l.notifyStreamChange(one)
	if l.nextChangedStream() != two || l.nextChangedStream() != one || l.nextChangedStream() != nil {
		t.Error("each change is to be returned once")
	}
	l.accepted = []*Stream{one, two}
	if l.nextAcceptedStream() != one || l.nextAcceptedStream() != two || l.nextAcceptedStream() != nil {
		t.Error("each stream is to be accepted once")
	}
}
