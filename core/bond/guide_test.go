// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// simGuide changes its mind now and then, and sometimes allows nothing.
type simGuide struct{ dice }

func (g *simGuide) AllowSubflows(subflows []GuideSubflow, _ Demand) string {
	keep := g.chance(0.9)
	for i := range subflows {
		if subflows[i].Allowed = subflows[i].InUse; !keep {
			subflows[i].Allowed = g.chance(0.5)
		}
	}
	return "by lot"
}

// checkGuided fails if bytes of a stream use a forbidden subflow although an allowed one is alive.
// Copies may have been listed before the guide changed its answer.
func (n *simNet) checkGuided(on *simSubflow, d int, f wire.Data) {
	b := n.ends[d]
	s := b.streams.all[f.Stream]
	if s != nil && s.permission.mode != wire.ModeRedundant && b.Scheduler() != "redundant" &&
		!b.classes.findGroupClass(s.permission.group).permitsSubflow(on.id) {
		n.fail(focus{f.Stream, d, f.Seq, f.Seq + wire.DataSeq(len(f.Bytes))},
			"%s sends stream %d of group %d on subflow %d, which the table forbids", endNames[d], f.Stream,
			s.permission.group, on.id)
	}
	if b.filter.guide == nil || b.Scheduler() == "redundant" || s == nil || s.permission.mode != wire.ModeBond ||
		slices.Contains(s.permission.answer.subflows, on.id) {
		return
	}
	for _, p := range b.subflows.list {
		if !p.isSilent() && b.classes.findGroupClass(s.permission.group).permitsSubflow(p.id) &&
			slices.Contains(s.permission.answer.subflows, p.id) {
			n.fail(focus{f.Stream, d, f.Seq, f.Seq + wire.DataSeq(len(f.Bytes))},
				"%s sends stream %d on subflow %d, but it may use %v", endNames[d], f.Stream, on.id, s.permission.answer.subflows)
		}
	}
}

// byNumber allows only subflow 1 to a stream of less than limit bytes.
type byNumber struct{ limit unit.Bytes }

func (g byNumber) AllowSubflows(subflows []GuideSubflow, d Demand) string {
	for i := range subflows {
		subflows[i].Allowed = subflows[i].ID == 1 || d.Pending+d.Burst >= g.limit
	}
	return "by size"
}

// TestGuided: forbidden subflows stay unused after the packet train, also by control frames and
// ACKs, whichever others are idle. Allowed ones are used as without a guide.
func TestGuided(t *testing.T) {
	run := func(size unit.Bytes, g Guide, trains bool) (took time.Duration, over2 uint64) {
		n := newSim(t, "auto", 0.2)
		n.addTriangle(8*unit.Mbps, 50*unit.Mbps, 50*unit.Mbps) // the helper would be the quicker way
		for _, b := range n.ends {
			b.SetGuide(g)
			if !trains {
				skipTrains(b)
			}
		}
		tr := &transfer{size: int(size)}
		n.run(n.carry([]*transfer{tr}))
		for _, b := range n.ends {
			over2 += b.subflows.subflowByID(2).bytesSent
		}
		return tr.done.Sub(simStart), over2
	}
	if took, over2 := run(100*unit.KB, byNumber{unit.MB}, false); over2 != 0 || took > 250*time.Millisecond {
		t.Errorf("100 KB: %d bytes over the helper, took %v", over2, took)
	}
	free, _ := run(4*unit.MB, nil, true)
	if took, over2 := run(4*unit.MB, byNumber{unit.MB}, true); took > free*103/100 || over2 == 0 {
		t.Errorf("4 MB: %d bytes over the helper, took %v, without a guide %v", over2, took, free)
	}
}

// TestGuidedIsReleased: a stream whose only allowed subflow falls silent continues over a forbidden
// one, and leaves that one later.
func TestGuidedIsReleased(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	n.ends[1].SetGuide(byNumber{unit.GB})
	for d := range 2 {
		h := n.subflows[0].hops[d][0]
		h.steps = append(h.steps, simStep{n.now.Add(500 * time.Millisecond), 0},
			simStep{n.now.Add(3 * time.Second), 8 * unit.Mbps})
	}
	tr := &transfer{size: int(6 * unit.MB)}
	done := n.carry([]*transfer{tr})
	carried := func() uint64 { return n.ends[1].subflows.subflowByID(2).bytesSent }
	var silent, back uint64
	n.after(2900*time.Millisecond, func() { silent = carried() })
	n.after(5*time.Second, func() { back = carried() })
	n.run(done)
	if silent < uint64(unit.MB) || carried() > back+uint64(64*unit.KB) {
		t.Errorf("over the forbidden subflow: %d bytes while the other was silent, %d in all, %d two seconds after it "+
			"came back", silent, carried(), back)
	}
}

// TestStreamList: ListStreams returns the allowed subflows of streams and the reasons.
func TestStreamList(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	n.ends[1].SetGuide(byNumber{unit.GB})
	trs := []*transfer{{size: 1000}, {size: int(unit.MB)}}
	done := n.carry(trs)
	var list, other []StreamInfo
	n.after(500*time.Millisecond, func() {
		list, other = n.ends[1].ListStreams(time.Time{}, 5), n.ends[0].ListStreams(time.Time{}, 5)
	})
	n.run(done)
	if len(list) != 1 || list[0].ID != 2 || !slices.Equal(list[0].Out.Subflows, []wire.SubflowID{1}) ||
		list[0].Out.Reason != "by size" || list[0].Acked == 0 {
		t.Errorf("%+v", list)
	}
	if len(other) != 1 || !slices.Equal(other[0].In.Subflows, []wire.SubflowID{1}) || other[0].In.Reason != "by size" ||
		other[0].ReadByApp == 0 {
		t.Errorf("the opener was notified of %+v", other)
	}
}

// byDelay allows a second subflow only while the first one is slow.
type byDelay struct{}

func (byDelay) AllowSubflows(subflows []GuideSubflow, _ Demand) string {
	slow := subflows[0].Delay > 400*time.Millisecond
	for i := range subflows {
		subflows[i].Allowed = i == 0 || slow
	}
	return "by delay"
}

// TestGuideIsAskedAboutTheEnd: bytes in flight on a subflow that has become slow move to one that
// the guide would allow now, though nothing else is left to ask about.
func TestGuideIsAskedAboutTheEnd(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 50*unit.Mbps, 50*unit.Mbps)
	n.ends[1].SetGuide(byDelay{})
	h := n.subflows[0].hops[1][0]
	h.steps = append(h.steps, simStep{n.now.Add(370 * time.Millisecond), 100 * unit.Kbps})
	tr := &transfer{size: int(400 * unit.KB)}
	n.run(n.carry([]*transfer{tr}))
	if took := tr.done.Sub(simStart); took > time.Second {
		t.Errorf("took %v: %+v", took, n.ends[1].Stats())
	}
}

// TestStreamListIsQuick: one stream has lasted while very many came and went.
func TestStreamListIsQuick(t *testing.T) {
	b := New(Config{OpensStreams: true})
	if _, err := b.OpenStream("example.com:80"); err != nil {
		t.Fatal(err)
	}
	b.streams.lastID = 1 << 40
	if _, err := b.OpenStream("example.com:81"); err != nil {
		t.Fatal(err)
	}
	if list := b.ListStreams(time.Time{}, 64); len(list) != 2 || list[0].ID != 1<<40+1 || list[1].ID != 1 {
		t.Errorf("%+v", list)
	}
}

// elsewhereGuide allows small data on subflow 1 and streams on subflow 2.
type elsewhereGuide struct{}

func (elsewhereGuide) AllowSubflows(subflows []GuideSubflow, d Demand) string {
	for i := range subflows {
		subflows[i].Allowed = (subflows[i].ID == 2) == (d.Pending > 0)
	}
	return "streams go by the other one"
}

// TestChoicesOfManyStreams: choices of very many streams at once take no more memory, and no longer
// a turn, than other frames. The other choices follow when the guide is asked again.
func TestChoicesOfManyStreams(t *testing.T) {
	const streams = 3000
	now := time.Unix(1000, 0)
	b := New(Config{MaxStreams: streams})
	b.SetGuide(elsewhereGuide{})
	b.AddSubflow(1, false, now)
	b.AddSubflow(2, false, now)
	b.MarkIdle(1)
	for id := range wire.StreamID(streams) {
		f := wire.Open{Stream: id + 1, Dest: "example.com:80"}
		if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), now); err != nil {
			t.Fatal(err)
		}
		if n := b.AcceptStream().Write([]byte("hello")); n != 5 {
			t.Fatal(n)
		}
	}
	b.control.frames = b.control.frames[:0] // OPENED of each
	notified := 0
	for range 20 {
		_, seg := b.NextSegment(now, nil)
		if len(seg) > 2*maxSegment {
			t.Fatalf("a segment of %d bytes", len(seg))
		}
		if len(b.control.notices) > maxNotices {
			t.Fatalf("%d notices wait", len(b.control.notices))
		}
		_ = eachFrame(seg, func(f wire.Type, _ []byte) error {
			if f == wire.TypeChoice {
				notified++
			}
			return nil
		})
		b.MarkIdle(1)
		now = now.Add(maxAnswerAge)
	}
	if notified < maxNotices {
		t.Errorf("%d of %d streams are notified of", notified, streams)
	}
}
