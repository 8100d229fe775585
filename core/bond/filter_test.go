// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// countingGuide allows the subflows it names and counts how often it is asked.
type countingGuide struct {
	allow []wire.SubflowID
	asked int
	last  Demand
}

func (g *countingGuide) AllowSubflows(subflows []GuideSubflow, d Demand) string {
	g.asked, g.last = g.asked+1, d
	for i := range subflows {
		subflows[i].Allowed = slices.Contains(g.allow, subflows[i].ID)
	}
	return "test"
}

// newFilter returns a filter of subflows 1, 2 and 3; group 1 may use 2 and 3.
func newFilter() *subflowFilter {
	f := &subflowFilter{subflows: &subflowTable{}, classes: &classTable{}}
	for id := range wire.SubflowID(3) {
		f.subflows.insertSubflow(&subflow{id: id + 1})
	}
	f.classes.replaceGroups(1, []wire.Group{{ID: 1, Weight: 1, Limited: true, Subflows: []wire.SubflowID{2, 3}}})
	return f
}

func TestSubflowFilterPermits(t *testing.T) {
	for _, c := range []struct {
		name       string
		guide      []wire.SubflowID // nil: no guide
		permission permission
		silent     wire.SubflowID
		want       []wire.SubflowID
	}{
		{name: "nothing limits it", want: []wire.SubflowID{1, 2, 3}},
		{name: "class", permission: permission{group: 1}, want: []wire.SubflowID{2, 3}},
		{name: "no CLASS_TABLE has named the group", permission: permission{group: 2}},
		{name: "bound", guide: []wire.SubflowID{2}, permission: permission{group: 1, boundTo: 1}, want: []wire.SubflowID{1}},
		{name: "guide", guide: []wire.SubflowID{2}, want: []wire.SubflowID{2}},
		{name: "the guide allows none", guide: []wire.SubflowID{}, want: []wire.SubflowID{1, 2, 3}},
		{name: "guide and class", guide: []wire.SubflowID{1, 2}, permission: permission{group: 1}, want: []wire.SubflowID{2}},
		{name: "not of mode Bond", guide: []wire.SubflowID{2}, permission: permission{mode: wire.ModeLatency},
			want: []wire.SubflowID{1, 2, 3}},
		{name: "silent", guide: []wire.SubflowID{2}, silent: 2, want: []wire.SubflowID{1, 2, 3}},
	} {
		f := newFilter()
		if c.guide != nil {
			f.replaceGuide(&countingGuide{allow: c.guide})
		}
		if c.silent > 0 {
			f.subflows.subflowByID(c.silent).silentSince = start
		}
		f.refreshPermission(1, &c.permission, Demand{Pending: unit.MB}, start)
		var got []wire.SubflowID
		view := []sched.Subflow{{ID: 1}, {ID: 2}, {ID: 3}}
		for _, p := range f.appendPermitted(nil, view, &c.permission) {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: permits %v, want %v", c.name, got, c.want)
		}
		if len(got) < 3 && !f.mayLimitSubflows(&c.permission) {
			t.Errorf("%s: said not to be limited", c.name)
		}
	}
}

// TestSubflowFilterAsks: the guide is asked when its answer is old, was expired, or was about
// much less; of a stream that has ended only when it is old.
func TestSubflowFilterAsks(t *testing.T) {
	f, g := newFilter(), &countingGuide{allow: []wire.SubflowID{1}}
	f.replaceGuide(g)
	var r permission
	now := start
	for _, c := range []struct {
		name  string
		do    func()
		bytes unit.Bytes
		asks  bool
	}{
		{"first", func() {}, 1000, true},
		{"at once again", func() {}, 1000, false},
		{"a quarter more", func() {}, 1250, false},
		{"more than that", func() {}, 1251, true},
		{"just before it is old", func() { now = now.Add(maxAnswerAge - 1) }, 1251, false},
		{"old", func() { now = now.Add(1) }, 1251, true},
		{"all expired", f.expireAnswers, 1251, true},
		{"this one expired", r.answer.invalidateAnswer, 1251, true},
		{"ended", func() { f.markStreamEnded(&r); f.expireAnswers() }, 1251, false},
		{"ended, and old", func() { now = now.Add(maxAnswerAge) }, 1251, true},
	} {
		before := g.asked
		c.do()
		if f.refreshPermission(1, &r, Demand{Pending: c.bytes}, now); g.asked > before != c.asks {
			t.Errorf("%s: asked %d times", c.name, g.asked-before)
		}
	}
	if g.last.BackloggedFor != now.Sub(start) {
		t.Errorf("the stream has been full for %v, want %v", g.last.BackloggedFor, now.Sub(start))
	}
}

func TestSubflowFilterOther(t *testing.T) {
	f := newFilter()
	one := f.subflows.subflowByID(1)
	r := permission{group: 1}
	if f.permitsOtherSubflow(&r, one, 0, 0, start) {
		t.Error("another subflow is permitted, but none is idle")
	}
	f.subflows.subflowByID(3).idle = true
	if !f.permitsOtherSubflow(&r, one, 0, 0, start) || f.permitsOtherSubflow(&r, f.subflows.subflowByID(3), 0, 0, start) {
		t.Error("subflow 3 is the only one that is idle")
	}
	g := &countingGuide{allow: []wire.SubflowID{2}}
	f.replaceGuide(g)
	f.refreshPermission(1, &r, Demand{}, start)
	g.allow = []wire.SubflowID{3} // as soon as it is asked about the bytes in flight too
	r.expected.NeededAt, r.answer.demand.SourceRate = start.Add(time.Second), 5
	if !f.permitsOtherSubflow(&r, one, unit.MB, 0, start) || g.asked != 2 || g.last.NeededIn != time.Second ||
		g.last.SourceRate != 5 {
		t.Errorf("the guide was asked %d times, last about %+v", g.asked, g.last)
	}
}

func TestSubflowFilterBound(t *testing.T) {
	f := newFilter()
	f.classes.limited = false
	var r permission
	f.bindStream(&r, 2)
	if f.bindStream(&r, 3); f.boundStreams != 1 || !f.permissionsDiffer() {
		t.Errorf("%d streams are bound", f.boundStreams)
	}
	f.markStreamEnded(&r)
	if f.markStreamEnded(&r); f.boundStreams != 0 || r.boundTo != 0 || f.permissionsDiffer() {
		t.Errorf("%d streams are bound after the end", f.boundStreams)
	}
}

func TestChangedChoice(t *testing.T) {
	var r permission
	r.answer.reason, r.answer.subflows = "a", []wire.SubflowID{1}
	for _, c := range []struct {
		after  time.Duration
		reason string
		want   bool
	}{{0, "a", true}, {time.Second, "a", false}, {time.Second, "b", true},
		{time.Second + choiceInterval - 1, "c", false}, {time.Second + choiceInterval, "c", true}} {
		r.answer.reason = c.reason
		if choice, ok := r.changedChoice(7, start.Add(c.after)); ok != c.want || ok &&
			(choice.Stream != 7 || choice.Reason != c.reason) {
			t.Errorf("after %v: %+v, %v", c.after, choice, ok)
		}
	}
}

// TestFastest: what may be silent comes last, what the guide keeps from small things before
// that, and of equals the least delay counts.
func TestFastest(t *testing.T) {
	f := newFilter()
	list := f.subflows.list
	for i, p := range list {
		sampleRTT(p, time.Duration(30-10*i)*time.Millisecond)
	}
	want := func(name string, besides *subflow, c *trafficClass, id wire.SubflowID) {
		t.Helper()
		if p := f.fastestPermitted(besides, c, start); p == nil || p.id != id {
			t.Errorf("%s: got %v, want subflow %d", name, p, id)
		}
	}
	want("least delay", nil, nil, 3)
	want("besides it", list[2], nil, 2)
	want("class", nil, f.classes.findGroupClass(1), 3)
	f.replaceGuide(&countingGuide{allow: []wire.SubflowID{1}})
	f.refreshSmallAnswer(start)
	want("guide", nil, nil, 1)
	list[0].silentSince = start
	want("silent", nil, nil, 3)
	if p := f.fastestPermitted(nil, unknownGroup, start); p != nil {
		t.Errorf("subflow %d for a group that may use none", p.id)
	}
}

// sampleRTT gives a subflow a sample of its local hop with that round trip.
func sampleRTT(p *subflow, rtt time.Duration) {
	p.est.AddLocalSample(start, estimate.Hop{SRTT: rtt, MinRTT: rtt, Rate: 10 * unit.Mbps})
}
