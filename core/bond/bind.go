package bond

import (
	"slices"

	"mpbond/link/wire"
)

// BindToSubflow lets a subflow carry all bytes that this end sends of the stream from now
// on, and no other one carry any: what is measured is that subflow. When it ends,
// so does the stream. It reports whether there is such a subflow; the stream must
// be of mode wire.Bond. Control frames go as always.
func (s *Stream) BindToSubflow(id wire.SubflowID) bool {
	b := s.bond
	if b.subflows.find(id) == nil || s.Done() || s.route.mode != wire.Bond {
		return false
	}
	b.filter.bindRoute(&s.route, id)
	return true
}

// resetBoundStreams ends the streams that are bound to a subflow which is gone.
func (b *Bond) resetBoundStreams(p *subflow) {
	if b.filter.boundRoutes == 0 {
		return
	}
	var gone []*Stream
	for _, s := range b.streams.all {
		if s.route.boundTo == p.id {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(x, y *Stream) int { return int(x.id) - int(y.id) })
	for _, s := range gone {
		s.Reset(wire.CodeUnreachable, "the subflow that it was bound to has ended")
	}
}
