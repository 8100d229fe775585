// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"

	"mpbond/link/wire"
)

// BindToSubflow makes one subflow carry all bytes that this end sends of the stream from now on.
// Measurements use it. When the subflow ends, the stream is reset. It reports whether the subflow
// exists; the stream must be of mode wire.ModeBond. Control frames may use any subflow.
func (s *Stream) BindToSubflow(id wire.SubflowID) bool {
	b := s.bond
	if b.subflows.subflowByID(id) == nil || s.Done() || s.permission.mode != wire.ModeBond {
		return false
	}
	b.filter.bindStream(&s.permission, id)
	return true
}

// resetBoundStreams resets the streams that are bound to a removed subflow.
func (b *Bond) resetBoundStreams(p *subflow) {
	if b.filter.boundStreams == 0 {
		return
	}
	var gone []*Stream
	for _, s := range b.streams.all {
		if s.permission.boundTo == p.id {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(x, y *Stream) int { return int(x.id) - int(y.id) })
	for _, s := range gone {
		s.Reset(wire.CodeUnreachable, "the subflow that it was bound to has ended")
	}
}
