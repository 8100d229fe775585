package bond

import (
	"testing"
	"time"

	"mpbond/unit"
	"mpbond/wire"
)

// addPlans puts streams and flows into groups. In the end each may use the first
// path, which then works.
func (sc *scenario) addPlans(r dice) {
	for i := range sc.streams {
		sc.streams[i].group = wire.GroupID(r.IntN(3))
	}
	for i := range sc.flows {
		sc.flows[i].group = wire.GroupID(r.IntN(3))
	}
	for at, last := time.Duration(0), false; !last; at += r.span(ms, 3*time.Second) {
		last = r.chance(0.5)
		p := planPlan{at: at, class: wire.Class(r.IntN(3)), weight: uint8(1 + r.IntN(5))}
		for g := range p.paths {
			p.paths[g] = uint(r.IntN(1 << len(sc.paths)))
			if last && r.chance(0.5) {
				p.paths[g] |= 1
			} else if last {
				p.paths[g] = 0
			}
		}
		sc.plans = append(sc.plans, p)
	}
}

// plan is the plan of the bond.
func (p planPlan) plan(paths int) []wire.Group {
	list := []wire.Group{{ID: 1, Class: p.class, Weight: p.weight}, {ID: 2, Weight: 1}}
	for g := range list {
		list[g].Limited = p.paths[g] != 0
		for i := range paths {
			if p.paths[g]&(1<<i) != 0 {
				list[g].Paths = append(list[g].Paths, wire.PathID(i+1))
			}
		}
	}
	return list
}

// planned runs downloads of that size at once, the i-th in group i+1 of a plan,
// and tells when each was done and what went over each path.
func planned(t *testing.T, size unit.Bytes, build func(*simNet), plan ...wire.Group) (took []time.Duration, over []uint64) {
	n := newSim(t, "auto", 0.2)
	build(n)
	var trs []*transfer
	for i := range plan {
		plan[i].ID = wire.GroupID(i + 1)
		trs = append(trs, &transfer{size: int(size), group: plan[i].ID})
	}
	n.ends[0].SetPlan(plan)
	n.run(n.carry(trs))
	for _, tr := range trs {
		took = append(took, tr.done.Sub(simStart))
	}
	for _, p := range n.paths {
		over = append(over, n.ends[1].path(p.id).sent)
	}
	return took, over
}

func house(n *simNet) { n.house(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps) }

// TestPlanLimits: streams use the paths that the plan allows, both ends knowing
// it, and all of these; others are not held up.
func TestPlanLimits(t *testing.T) {
	limited := func(paths ...wire.PathID) wire.Group { return wire.Group{Weight: 1, Limited: true, Paths: paths} }
	const size = 2 * unit.MB
	took, over := planned(t, size, house, limited(1))
	if over[1] > uint64(size/100) || took[0] > 2400*time.Millisecond {
		t.Errorf("over path 1 only: %v bytes, took %v", over, took)
	}
	took, over = planned(t, size, house, limited(2))
	if over[0] > uint64(size/50) { // it carries control frames
		t.Errorf("over path 2 only: %v bytes, took %v", over, took)
	}
	took, over = planned(t, size, house, limited(1, 2))
	free, _ := planned(t, size, house, wire.Group{Weight: 1})
	if over[1] < uint64(size/5) || took[0] > free[0]*105/100 {
		t.Errorf("over both: %v bytes, took %v, without a limit %v", over, took, free)
	}
	// One each: both are done as if alone.
	took, over = planned(t, size, house, limited(1), limited(2))
	if took[0] > 2400*time.Millisecond || took[1] > 3800*time.Millisecond {
		t.Errorf("one path each: %v bytes, took %v", over, took)
	}
}

// TestPlanWaits: a stream waits while no path is allowed to it, holding up nobody,
// and goes on when there is one.
func TestPlanWaits(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	house(n)
	n.ends[0].SetPlan([]wire.Group{{ID: 1, Weight: 1, Limited: true}})
	waits, other := &transfer{size: int(unit.MB), group: 1}, &transfer{size: int(unit.MB)}
	done := n.carry([]*transfer{waits, other})
	var early int
	n.after(5*time.Second, func() {
		early = waits.read
		n.ends[0].SetPlan([]wire.Group{{ID: 1, Weight: 1, Limited: true, Paths: []wire.PathID{2}}})
	})
	n.run(done)
	if early != 0 || other.done.Sub(simStart) > 1200*time.Millisecond {
		t.Errorf("%d bytes came by no path; the other one took %v", early, other.done.Sub(simStart))
	}
	if took := waits.done.Sub(simStart); took > 8*time.Second {
		t.Errorf("allowed after 5 s, it took %v", took)
	}
}

// TestPlanPathSilent: a stream whose only path falls silent waits for it, and
// does not go over others.
func TestPlanPathSilent(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	house(n)
	for d := range 2 {
		h := n.paths[0].hops[d][0]
		h.steps = append(h.steps, simStep{n.now.Add(500 * time.Millisecond), 0}, simStep{n.now.Add(3 * time.Second), 8 * unit.Mbps})
	}
	n.ends[0].SetPlan([]wire.Group{{ID: 1, Weight: 1, Limited: true, Paths: []wire.PathID{1}}})
	tr := &transfer{size: int(2 * unit.MB), group: 1}
	n.run(n.carry([]*transfer{tr}))
	if over := n.ends[1].path(2).sent; over > 100_000 {
		t.Errorf("%d bytes went over the other path", over)
	}
	if took := tr.done.Sub(simStart); took > 7*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestClasses: a stream of a higher class hardly waits for others, which are done
// after it. It does not overtake what is on its way, and others have turns while
// its window or slow start does not let it.
func TestClasses(t *testing.T) {
	const size = 2 * unit.MB
	alone, _ := planned(t, size, house, wire.Group{Weight: 1})
	took, _ := planned(t, size, house, wire.Group{Weight: 1, Class: wire.Low}, wire.Group{Weight: 1}, wire.Group{Weight: 1, Class: wire.High})
	if took[2] > alone[0]*140/100 || took[1] < took[2]*3/2 || took[0] < took[1] {
		t.Errorf("low, normal and high take %v, alone it takes %v", took, alone)
	}
}

// TestWeights: of two streams of one class that always have bytes to send, one of
// weight 3 gets three quarters.
func TestWeights(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	house(n)
	n.ends[0].SetPlan([]wire.Group{{ID: 1, Weight: 3}, {ID: 2, Weight: 1}})
	three, one := &transfer{size: int(4 * unit.MB), group: 1}, &transfer{size: int(4 * unit.MB), group: 2}
	done := n.carry([]*transfer{three, one})
	ratio := 0.0
	n.run(func() bool {
		if ratio == 0 && three.read >= int(3*unit.MB) {
			ratio = float64(three.read) / float64(one.read)
		}
		return done()
	})
	if ratio < 2.4 || ratio > 3.6 {
		t.Errorf("one of weight 3 was ahead of one of weight 1 by a factor of %.2f", ratio)
	}
}
