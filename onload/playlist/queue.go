// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"time"

	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// queue maps objects on the board to segments. The loop's lock guards it.
type queue struct {
	loop      *transfer.Loop
	startTime time.Time
	segments  map[int]*segment
}

// enqueueSegment adds a segment to the board. The object number grows with the due time, since
// lower numbers are wanted first.
func (q queue) enqueueSegment(s *segment, due time.Time) {
	s.object = int(due.Sub(q.startTime)/(time.Second/4)) * 64
	for q.segments[s.object] != nil {
		s.object++
	}
	q.segments[s.object] = s
	q.updateWanted(s)
	q.loop.Board.AddItems(board.Item{Object: s.object, To: s.size})
}

// hasSegment reports whether a segment is on the board.
func (q queue) hasSegment(s *segment) bool { return q.segments[s.object] == s }

// updateWanted passes to the board whether a player waits for a segment.
func (q queue) updateWanted(s *segment) {
	if q.hasSegment(s) {
		q.loop.Board.SetWanted(s.object, s.readers > 0)
	}
}

// isUnderWay reports whether a device is fetching a segment now.
func (q queue) isUnderWay(s *segment) bool { return q.hasSegment(s) && q.loop.IsUnderWay(s.object) }

// dequeueSegment removes a segment from the board.
func (q queue) dequeueSegment(s *segment) {
	if q.hasSegment(s) {
		q.loop.WithdrawObject(s.object)
		delete(q.segments, s.object)
	}
}
