package bond

import (
	"slices"
	"testing"

	"mpbond/link/wire"
)

func TestControlQueue(t *testing.T) {
	var q controlQueue
	one, two := &Stream{id: 1}, &Stream{id: 2}
	q.add(one, wire.TypeOpen)
	q.add(one, wire.TypeWindow)
	q.add(two, wire.TypeWindow)
	q.add(one, wire.TypeWindow) // is there
	q.addOnce(wire.TypePlan)
	q.addOnce(wire.TypePlan)
	q.repeatedOf(one).add(wire.TypeWindow)
	type taken struct {
		id    wire.StreamID
		t     wire.Type
		again bool
	}
	var got []taken
	take := func(n int) func(c control, again bool) bool {
		return func(c control, again bool) bool {
			id := wire.StreamID(0)
			if c.s != nil {
				id = c.s.id
			}
			got = append(got, taken{id, c.t, again})
			n--
			return n > 0
		}
	}
	q.takeFrames(take(3))
	q.add(one, wire.TypeWindow)
	q.add(two, wire.TypeWindow)
	q.takeFrames(take(9))
	want := []taken{{1, wire.TypeOpen, false}, {1, wire.TypeWindow, true}, {2, wire.TypeWindow, false},
		{0, wire.TypePlan, false}, {1, wire.TypeWindow, false}, {2, wire.TypeWindow, false}}
	if !slices.Equal(got, want) || !q.empty() {
		t.Errorf("taken %v, want %v", got, want)
	}
	for range maxNotices + 5 {
		q.notice(wire.FlowEnd{Flow: 1})
	}
	n := 0
	q.takeNotices(func(wire.Frame) bool { n++; return n < 10 })
	if len(q.notices) != maxNotices-10 || !q.hasRoom() || q.empty() {
		t.Errorf("%d notices are left", len(q.notices))
	}
}
