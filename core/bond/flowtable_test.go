// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// newFlowTable returns a table without a bond, over subflows 1 to 3.
func newFlowTable(accepts bool) *flowTable {
	f := newFilter()
	return &flowTable{filter: f, classes: f.classes, control: &controlQueue{}, memory: &memoryBudget{},
		timer: &wakeTimer{},
		trace: &tracer{}, stats: &Stats{}, accepts: accepts, maxFlows: 4}
}

// TestFlowTable does things with two tables at random: no datagram is delivered twice, or
// after 200 ms, or changed; what waits is counted; and in the end nothing is left.
func TestFlowTable(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		ends := [2]*flowTable{newFlowTable(false), newFlowTable(true)}
		now, idle := start, &backlog{classes: ends[0].classes}
		var flows []*Flow
		sent := map[wire.FlowID]int{}
		delivered := map[wire.FlowID]map[byte]bool{}
		for range 400 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Millisecond)
			from := ends[0]
			switch r.IntN(6) {
			case 0:
				if f, err := from.openDatagramFlow(r.IntN(2) == 0, now); err == nil {
					flows = append(flows, f)
					delivered[f.ID()] = map[byte]bool{}
				}
			case 1, 2, 3:
				if len(flows) > 0 {
					f := flows[r.IntN(len(flows))]
					if err := f.Send(simAddr, []byte{byte(sent[f.ID()])}, now); err == nil {
						sent[f.ID()]++
					}
				}
			case 4:
				if p := from.filter.subflows.subflowByID(wire.SubflowID(1 + r.IntN(3))); p != nil {
					p.idle = true
				}
			case 5:
				if len(flows) > 1 && r.IntN(10) == 0 {
					flows[0].End(wire.CodeClosed, "", now)
					flows = flows[1:]
				}
			}
			for l := from.nextSendableLeg(now); l != nil; l = from.nextSendableLeg(now) {
				p := l.subflow
				if at := l.waiting[0].queuedAt; now.Sub(at) > maxQueueTime {
					t.Fatalf("seed %d: a datagram leaves after %v", seed, now.Sub(at))
				}
				seg := from.fillDatagrams(p, idle, now, nil)
				p.idle = false
				if err := eachFrame(seg, func(kind wire.Type, payload []byte) error {
					if kind == wire.TypeFlowEnd {
						return ends[1].receiveFlowEnd(payload, now)
					}
					d, err := wire.ParseDatagram(payload)
					if err == nil {
						_, err = ends[1].dispatchDatagram(d, now)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			for f := ends[1].nextChangedFlow(); f != nil; f = ends[1].nextChangedFlow() {
				for d, ok, _ := f.Receive(); ok; d, ok, _ = f.Receive() {
					if n := d.Bytes[0]; delivered[f.ID()][n] {
						t.Fatalf("seed %d: datagram %d of flow %d is delivered twice", seed, n, f.ID())
					} else {
						delivered[f.ID()][n] = true
					}
				}
			}
			checkFlowTable(t, from)
			checkFlowTable(t, ends[1])
		}
		for _, e := range ends {
			e.failAllFlows(wire.Reset{}, now)
			e.expireUnusedFlows(now.Add(time.Hour))
			if len(e.all) != 0 || e.outBytes != 0 || e.inBytes != 0 || e.memory.taken != 0 || len(e.ready) != 0 {
				t.Errorf("seed %d: left are %d flows, %v, %v, %v", seed, len(e.all), e.outBytes, e.inBytes, e.memory.taken)
			}
		}
	}
}

func checkFlowTable(t *testing.T, e *flowTable) {
	t.Helper()
	var out unit.Bytes
	for _, l := range e.ready {
		if !l.queued {
			t.Fatal("a leg has its turn without a mark")
		}
		for _, d := range l.waiting {
			out += unit.Bytes(len(d.frame)) + datagramCost
		}
	}
	if out != e.outBytes || e.memory.taken != e.outBytes+e.inBytes || len(e.all) > e.maxFlows {
		t.Fatalf("%v wait to be sent, %v are counted; %v are taken; %d flows", out, e.outBytes, e.memory.taken, len(e.all))
	}
}

// TestFlowTableEvicts: one flow more ends the one unused for longest, if that is long enough.
func TestFlowTableEvicts(t *testing.T) {
	e := newFlowTable(false)
	var flows []*Flow
	for i := range 4 {
		f, err := e.openDatagramFlow(false, start.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, f)
	}
	if _, err := e.openDatagramFlow(false, start.Add(dnsIdleTimeout-1)); err == nil {
		t.Error("a flow too many")
	}
	if _, err := e.openDatagramFlow(false, start.Add(dnsIdleTimeout)); err != nil || flows[0].Err() == nil ||
		flows[1].Err() != nil {
		t.Errorf("%v; the first %v, the second %v", err, flows[0].Err(), flows[1].Err())
	}
}

func TestPinnedSubflowMoves(t *testing.T) {
	slow, fast := &subflow{id: 1}, &subflow{id: 2}
	sampleRTT(slow, 200*time.Millisecond)
	sampleRTT(fast, 20*time.Millisecond)
	var n pinnedSubflow
	if move, _ := n.shouldMove(nil, start); move {
		t.Error("moves to none")
	}
	if move, _ := n.shouldMove(slow, start); !move {
		t.Error("does not take the first one")
	}
	n.subflow = slow
	for _, c := range []struct {
		best *subflow
		at   time.Duration
		want bool
	}{{fast, 0, false}, {fast, moveDelay - 1, false}, {slow, moveDelay - 1, false}, {fast, moveDelay, false},
		{fast, 2*moveDelay - 1, false}, {fast, 2 * moveDelay, true}} {
		if move, _ := n.shouldMove(c.best, start.Add(c.at)); move != c.want {
			t.Errorf("at %v to subflow %d: %v", c.at, c.best.id, move)
		}
	}
	n.otherFasterSince = time.Time{}
	slow.silentSince = start
	if move, _ := n.shouldMove(fast, start); !move {
		t.Error("stays though its subflow is silent")
	}
}
