// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"

	"mpbond/link/wire"
)

func TestControlQueue(t *testing.T) {
	var q controlQueue
	one, two := &Stream{id: 1}, &Stream{id: 2}
	q.queueFrame(one, wire.TypeOpen)
	q.queueFrame(one, wire.TypeWindow)
	q.queueFrame(two, wire.TypeWindow)
	q.queueFrame(one, wire.TypeWindow) // is there
	q.queueBondFrameOnce(wire.TypeClassTable)
	q.queueBondFrameOnce(wire.TypeClassTable)
	q.repeatedTypes(one).addFrameType(wire.TypeWindow)
	type taken struct {
		id    wire.StreamID
		t     wire.Type
		again bool
	}
	var got []taken
	take := func(n int) func(c controlFrame, again bool) bool {
		return func(c controlFrame, again bool) bool {
			id := wire.StreamID(0)
			if c.stream != nil {
				id = c.stream.id
			}
			got = append(got, taken{id, c.frameType, again})
			n--
			return n > 0
		}
	}
	q.takeFrames(take(3))
	q.queueFrame(one, wire.TypeWindow)
	q.queueFrame(two, wire.TypeWindow)
	q.takeFrames(take(9))
	want := []taken{{1, wire.TypeOpen, false}, {1, wire.TypeWindow, true}, {2, wire.TypeWindow, false},
		{0, wire.TypeClassTable, false}, {1, wire.TypeWindow, false}, {2, wire.TypeWindow, false}}
	if !slices.Equal(got, want) || !q.hasNoFrames() {
		t.Errorf("taken %v, want %v", got, want)
	}
	for range maxNotices + 5 {
		q.queueNotice(wire.FlowEnd{Flow: 1})
	}
	n := 0
	q.takeNotices(func(wire.Frame) bool { n++; return n < 10 })
	if len(q.notices) != maxNotices-10 || !q.hasNoticeRoom() || q.hasNoFrames() {
		t.Errorf("%d notices are left", len(q.notices))
	}
}
