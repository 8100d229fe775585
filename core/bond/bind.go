package bond

import (
	"slices"

	"mpbond/link/wire"
)

// Bind lets a subflow carry all bytes that this end sends of the stream from now
// on, and no other one carry any: what is measured is that subflow. When it ends,
// so does the stream. It reports whether there is such a subflow; the stream must
// be of mode wire.Bond. Control frames go as always.
func (s *Stream) Bind(id wire.PathID) bool {
	b := s.bond
	if b.subflows.find(id) == nil || s.Done() || s.route.mode != wire.Bond {
		return false
	}
	b.filter.bind(&s.route, id)
	return true
}

// endBound ends the streams that are bound to a subflow which is gone.
func (b *Bond) endBound(p *subflow) {
	if b.filter.bound == 0 {
		return
	}
	var gone []*Stream
	for _, s := range b.streams.all {
		if s.route.only == p.id {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(x, y *Stream) int { return int(x.id) - int(y.id) })
	for _, s := range gone {
		s.Reset(wire.CodeUnreachable, "the subflow that it was bound to has ended")
	}
}
