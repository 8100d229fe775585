// SPDX-License-Identifier: Apache-2.0

package bond

import "mpbond/link/wire"

// streamTable holds the streams of a bond, and which of them its owner has not seen since they
// changed. A stream leaves the table when it has ended in both directions or was reset; its
// readable bytes stay readable. Not safe for concurrent use.
type streamTable struct {
	all      map[wire.StreamID]*Stream
	lastID   wire.StreamID // at the opening end the highest ID used, at the other end the highest seen
	accepted []*Stream     // opened by the other end
	changed  []*Stream
}

// nextAcceptedStream returns a stream that the other end has opened, once, or nil.
func (t *streamTable) nextAcceptedStream() *Stream {
	if len(t.accepted) == 0 {
		return nil
	}
	s := t.accepted[0]
	t.accepted = t.accepted[1:]
	return s
}

// notifyStreamChange makes nextChangedStream return a stream.
func (t *streamTable) notifyStreamChange(s *Stream) {
	if !s.inChanged {
		s.inChanged = true
		t.changed = append(t.changed, s)
	}
}

// nextChangedStream returns a stream that has changed since it was last returned, or nil.
func (t *streamTable) nextChangedStream() *Stream {
	if len(t.changed) == 0 {
		return nil
	}
	s := t.changed[0]
	t.changed = t.changed[1:]
	s.inChanged = false
	return s
}
