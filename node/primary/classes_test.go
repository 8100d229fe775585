// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestClassesAreReused edits rules at random while connections come and go. While open connections
// have fewer kinds of rules than there are classes, a new kind finds a class. Open connections keep
// their class and its meaning, and no ID means two things.
func TestClassesAreReused(t *testing.T) {
	type stream struct {
		c   *endpoint.Conn
		id  wire.GroupID
		key string
	}
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			b := newBondHolder(t, time.Minute)
			r := rand.New(rand.NewPCG(seed, 0))
			meant := map[wire.GroupID]string{}
			var open []stream
			refused := 0
			for range 3000 {
				if len(open) > 0 && r.IntN(5) < 2 || len(open) > 4*wire.MaxGroups {
					i := r.IntN(len(open))
					open[i].c.Reset()
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
					continue
				}
				// A moving range: new kinds come, and some return.
				class := &policy.TrafficClass{
					Devices: []string{fmt.Sprint("phone", r.IntN(20))},
					Weight:  uint8(1 + r.IntN(100)),
				}
				kinds := map[string]bool{}
				for _, s := range open {
					kinds[s.key] = true
				}
				b.mu.Lock()
				id, err := b.classForSettings(class)
				b.mu.Unlock()
				if err != nil {
					var why wire.Reset
					if !errors.As(err, &why) || why.Code != wire.CodeLimit || len(kinds) < wire.MaxGroups {
						t.Fatalf("%d kinds are open: %v", len(kinds), err)
					}
					refused++
					continue
				}
				if was, ok := meant[id]; ok && was != class.Key() {
					t.Fatalf("class %d means %s, and meant %s", id, class.Key(), was)
				}
				meant[id] = class.Key()
				c, err := b.active.endpoint.Dial("web:80", wire.ModeBond, id)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, stream{c, id, class.Key()})
				known := map[wire.GroupID]string{}
				for _, g := range b.classes.list {
					known[g.id] = g.key
				}
				for _, s := range open {
					if known[s.id] != s.key {
						t.Fatalf("a stream of group %d, %s, has %q", s.id, s.key, known[s.id])
					}
				}
			}
			if len(meant) <= 2*wire.MaxGroups || len(b.classes.list) > wire.MaxGroups || refused == 0 {
				t.Errorf("%d kinds in all, %d refused; %d groups are there", len(meant), refused, len(b.classes.list))
			}
		})
	}
}

// TestClassPlan: the class table is sent when a class is new or its subflows change, and again to a
// new bond. A class knows since when it has had no subflow.
func TestClassPlan(t *testing.T) {
	var c classTable
	none := func() map[wire.GroupID]bool { return nil }
	phone := &policy.TrafficClass{Devices: []string{"phone"}, Weight: 1}
	if id, added, err := c.assignClass(nil, none); id != 0 || added || err != nil {
		t.Errorf("nothing special is class %d, %v, %v", id, added, err)
	}
	id, added, err := c.assignClass(phone, none)
	if id != 1 || !added || err != nil {
		t.Fatalf("class %d, %v, %v", id, added, err)
	}
	same := *phone
	if again, added, _ := c.assignClass(&same, none); again != id || added {
		t.Errorf("what says the same is class %d", again)
	}
	own, helped := policy.ClassSubflow{
		ID:     1,
		Direct: true,
		Names:  []string{"laptop"},
	}, policy.ClassSubflow{
		ID:    2,
		Names: []string{"phone"},
	}
	now := time.Unix(1e9, 0)
	for i, step := range []struct {
		subflows []policy.ClassSubflow
		again    bool // the bond is new
		changed  bool
		empty    []emptyClass
	}{
		{[]policy.ClassSubflow{own}, false, true, []emptyClass{{id, 0}}},
		{[]policy.ClassSubflow{own}, false, false, []emptyClass{{id, 40 * time.Second}}},
		{[]policy.ClassSubflow{own}, true, true, []emptyClass{{id, 80 * time.Second}}},
		{[]policy.ClassSubflow{own, helped}, false, true, nil},
		{[]policy.ClassSubflow{helped}, false, false, nil},
		{nil, false, true, []emptyClass{{id, 0}}},
	} {
		if step.again {
			c.markAllUnsent()
		}
		plan, changed := c.computeTable(step.subflows, now)
		if changed != step.changed || len(plan) != 1 || plan[0].ID != id {
			t.Errorf("step %d: changed %v, %+v", i, changed, plan)
		}
		if list := c.listEmptyClasses(now); !slices.Equal(list, step.empty) {
			t.Errorf("step %d: empty are %+v", i, list)
		}
		now = now.Add(40 * time.Second)
	}
	if got, ok := c.settingsOf(id); !ok || got.Key() != phone.Key() {
		t.Errorf("class %d means %+v", id, got)
	}
	if _, ok := c.settingsOf(id + 1); ok {
		t.Error("a class that nobody has means something")
	}
}
