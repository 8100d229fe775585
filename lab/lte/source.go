// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"time"

	"mpbond/base/unit"
)

// sourceItem is the size of a Source's packets. fullQueueBytes is what a Source without Rate keeps
// waiting for each carrier. It exceeds what one carrier grants in nine subframes, the longest wait
// for retransmissions.
const (
	sourceItem     unit.Bytes = 1500
	fullQueueBytes            = 200 * unit.KB
)

// Source is background traffic to a user of the model. It belongs to the caller of Network.Step.
type Source struct {
	// Rate is the sending rate while on. With 0 it always has data to send.
	Rate unit.Rate
	// On and Off alternate, beginning with On at time zero. Without On the source is always on.
	On, Off time.Duration

	dueBytes  float64 // bytes to send
	freeItems []*Item
}

// isSendingAt reports whether the source sends at a time. Before time zero only a source without On
// does.
func (s *Source) isSendingAt(at time.Duration) bool {
	return s.On == 0 || at >= 0 && at%(s.On+s.Off) < s.On
}

// Offer offers user u the packets of the subframe that begins at a time.
func (s *Source) Offer(n *Network, u int, at time.Duration) {
	if !s.isSendingAt(at) {
		s.dueBytes = 0
		return
	}
	if s.Rate == 0 {
		for n.Waiting(u) < fullQueueBytes*unit.Bytes(len(n.users[u].Cells)) && s.offerOnePacket(n, u) {
		}
		return
	}
	for s.dueBytes += float64(s.Rate) / 8 / 1000; s.dueBytes >= float64(sourceItem); s.dueBytes -= float64(sourceItem) {
		s.offerOnePacket(n, u)
	}
}

// offerOnePacket offers one packet. It returns false if the user's buffer is full.
func (s *Source) offerOnePacket(n *Network, u int) bool {
	if len(s.freeItems) == 0 {
		s.freeItems = append(s.freeItems, &Item{Size: sourceItem})
	}
	it := s.freeItems[len(s.freeItems)-1]
	s.freeItems = s.freeItems[:len(s.freeItems)-1]
	if !n.Offer(u, it) {
		s.freeItems = append(s.freeItems, it)
		return false
	}
	return true
}

// Recycle takes a delivered item, to use it again.
func (s *Source) Recycle(it *Item) { s.freeItems = append(s.freeItems, it) }
