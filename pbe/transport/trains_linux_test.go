// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"slices"
	"testing"
)

// TestTrains: packets of one length share a message, the last may be shorter. An MTU probe is sent
// alone.
func TestTrains(t *testing.T) {
	for _, c := range []struct {
		lengths  []int
		together bool
		want     []int // packets of each message
	}{
		{[]int{1200, 1200, 1200, 300}, true, []int{4}},
		{[]int{1200, 300, 1200, 1200}, true, []int{2, 2}},
		{[]int{300, 1200, 1200}, true, []int{1, 2}},
		{[]int{1200, 1200, 300}, false, []int{1, 1, 1}},
		{[]int{maxPayload, 1200, 1200, 300}, true, []int{1, 3}}, // a probe first
		{[]int{1200, 1400, 1200, 1200}, true, []int{1, 1, 2}},
		{[]int{1200, 1200, maxPayload, 300}, true, []int{2, 1, 1}},
		{[]int{1200, maxPayload}, true, []int{1, 1}},
		{slices.Repeat([]int{1200}, 60), true, []int{54, 6}}, // 64 KB
		{slices.Repeat([]int{100}, 70), true, []int{64, 6}},
	} {
		var o outbox
		for range 2 { // what a batch leaves behind does not matter to the next
			o.clearPackets()
			for _, n := range c.lengths {
				o.addSealedPacket(append(o.buf, make([]byte, n)...), minPayload)
			}
			o.buildMessages(0, c.together)
			bytes := 0
			for i, msg := range o.list {
				bytes += len(msg.Buffers[0])
				if (len(msg.OOB) > 0) != (o.packetCounts[i] > 1) {
					t.Errorf("%v: message %d of %d packets has %d bytes of control", c.lengths, i, o.packetCounts[i],
						len(msg.OOB))
				}
			}
			if !slices.Equal(o.packetCounts, c.want) || bytes != len(o.buf) {
				t.Errorf("%v go as %v, %d bytes of %d", c.lengths, o.packetCounts, bytes, len(o.buf))
			}
		}
		o.buildMessages(len(c.lengths)-1, c.together) // the last packet alone
		if last := c.lengths[len(c.lengths)-1]; len(o.list) != 1 || len(o.list[0].Buffers[0]) != last {
			t.Errorf("%v: the last packet goes as %v", c.lengths, o.packetCounts)
		}
	}
}
