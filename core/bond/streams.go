package bond

import "mpbond/link/wire"

// streamTable is the streams of a bond, and which of them its owner has yet to look at. A
// stream leaves the table when it has ended in both directions or was reset; what of it can
// be read stays readable. Not safe for concurrent use.
type streamTable struct {
	all      map[wire.StreamID]*Stream
	lastID   wire.StreamID // at the end that opens: the newest number; else: the highest seen
	accepted []*Stream     // opened by the other end
	changed  []*Stream
}

// nextAccepted returns a stream that the other end has opened, once, or nil.
func (t *streamTable) nextAccepted() *Stream {
	if len(t.accepted) == 0 {
		return nil
	}
	s := t.accepted[0]
	t.accepted = t.accepted[1:]
	return s
}

// notifyChange lets nextChanged return a stream.
func (t *streamTable) notifyChange(s *Stream) {
	if !s.inChanged {
		s.inChanged = true
		t.changed = append(t.changed, s)
	}
}

// nextChanged returns a stream that has changed since it was last returned, or nil.
func (t *streamTable) nextChanged() *Stream {
	if len(t.changed) == 0 {
		return nil
	}
	s := t.changed[0]
	t.changed = t.changed[1:]
	s.inChanged = false
	return s
}
