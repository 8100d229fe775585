package lte

import (
	"time"

	"mpbond/base/unit"
)

// sourceItem is the size of packets that a Source sends, fullQueueBytes what it keeps
// waiting for each carrier if it is always full: more than one gives in the nine
// subframes in which it may wait for blocks to come again.
const (
	sourceItem     unit.Bytes = 1500
	fullQueueBytes            = 200 * unit.KB
)

// Source sends as a user of the model does whose packets nobody wants. It belongs
// to who steps the network.
type Source struct {
	// Rate is what it sends while it is on; 0: it has always something to send.
	Rate unit.Rate
	// On and Off take turns, beginning with on at time zero; without On it is
	// always on.
	On, Off time.Duration

	dueBytes  float64 // bytes to be sent
	freeItems []*Item
}

// isOn tells whether it sends at a time; before time zero only who is always on
// does.
func (s *Source) isOn(at time.Duration) bool {
	return s.On == 0 || at >= 0 && at%(s.On+s.Off) < s.On
}

// Offer brings user u what it sends in the subframe that begins at a time.
func (s *Source) Offer(n *Network, u int, at time.Duration) {
	if !s.isOn(at) {
		s.dueBytes = 0
		return
	}
	if s.Rate == 0 {
		for n.Waiting(u) < fullQueueBytes*unit.Bytes(len(n.users[u].Cells)) && s.offerItem(n, u) {
		}
		return
	}
	for s.dueBytes += float64(s.Rate) / 8 / 1000; s.dueBytes >= float64(sourceItem); s.dueBytes -= float64(sourceItem) {
		s.offerItem(n, u)
	}
}

func (s *Source) offerItem(n *Network, u int) bool {
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

// Recycle takes an item that has come over, to be sent again.
func (s *Source) Recycle(it *Item) { s.freeItems = append(s.freeItems, it) }
