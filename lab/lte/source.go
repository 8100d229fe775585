package lte

import (
	"time"

	"mpbond/base/unit"
)

// sourceItem is the size of packets that a Source sends, fullQueue what it keeps
// waiting for each carrier if it is always full: more than one gives in the nine
// subframes in which it may wait for blocks to come again.
const (
	sourceItem unit.Bytes = 1500
	fullQueue             = 200 * unit.KB
)

// Source sends as a user of the model does whose packets nobody wants. It belongs
// to who steps the network.
type Source struct {
	// Rate is what it sends while it is on; 0: it has always something to send.
	Rate unit.Rate
	// On and Off take turns, beginning with on at time zero; without On it is
	// always on.
	On, Off time.Duration

	due   float64 // bytes to be sent
	spare []*Item
}

// active tells whether it sends at a time; before time zero only who is always on
// does.
func (s *Source) active(at time.Duration) bool {
	return s.On == 0 || at >= 0 && at%(s.On+s.Off) < s.On
}

// Offer brings user u what it sends in the subframe that begins at a time.
func (s *Source) Offer(n *Network, u int, at time.Duration) {
	if !s.active(at) {
		s.due = 0
		return
	}
	if s.Rate == 0 {
		for n.Waiting(u) < fullQueue*unit.Bytes(len(n.users[u].Cells)) && s.send(n, u) {
		}
		return
	}
	for s.due += float64(s.Rate) / 8 / 1000; s.due >= float64(sourceItem); s.due -= float64(sourceItem) {
		s.send(n, u)
	}
}

func (s *Source) send(n *Network, u int) bool {
	if len(s.spare) == 0 {
		s.spare = append(s.spare, &Item{Size: sourceItem})
	}
	it := s.spare[len(s.spare)-1]
	s.spare = s.spare[:len(s.spare)-1]
	if !n.Offer(u, it) {
		s.spare = append(s.spare, it)
		return false
	}
	return true
}

// Back takes an item that has come over, to be sent again.
func (s *Source) Back(it *Item) { s.spare = append(s.spare, it) }
