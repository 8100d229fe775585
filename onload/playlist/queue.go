package playlist

import (
	"time"

	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// queue has the segments that are on a loop's board, by the numbers of their objects there.
// The loop's lock guards it.
type queue struct {
	loop     *transfer.Loop
	begun    time.Time
	segments map[int]*segment
}

// add gives a segment to the board. Objects are wanted in the order of their numbers, so
// these are times.
func (q queue) add(s *segment, due time.Time) {
	s.object = int(due.Sub(q.begun)/(time.Second/4)) * 64
	for q.segments[s.object] != nil {
		s.object++
	}
	q.segments[s.object] = s
	q.note(s)
	q.loop.Board.Add(board.Item{Object: s.object, To: s.size})
}

// has reports whether a segment is on the board.
func (q queue) has(s *segment) bool { return q.segments[s.object] == s }

// note tells the board whether a player waits for a segment.
func (q queue) note(s *segment) {
	if q.has(s) {
		q.loop.Board.SetWanted(s.object, s.readers > 0)
	}
}

// isUnderWay reports whether a device brings something of a segment now.
func (q queue) isUnderWay(s *segment) bool { return q.has(s) && q.loop.IsUnderWay(s.object) }

// remove has nobody bring any more of a segment.
func (q queue) remove(s *segment) {
	if q.has(s) {
		q.loop.Withdraw(s.object)
		delete(q.segments, s.object)
	}
}
