package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Memory is a budget that a bond takes memory from, and shares with others. Its methods
// may be called with the bond's owner's lock held and must not block.
type Memory interface {
	// Take counts n bytes as taken, unless that is too much.
	Take(n unit.Bytes) bool
	// Give gives bytes back.
	Give(n unit.Bytes)
	// Short reports whether the holder should take less from now on, before Take refuses.
	Short() bool
}

// errMemory is why a stream is reset.
const errMemory = "the memory for the device's streams is used up"

// takeMemory counts n bytes as held by the bond and reports whether it may hold them.
func (b *Bond) takeMemory(n unit.Bytes) bool {
	if b.taken+n > maxMemory || b.cfg.Memory != nil && !b.cfg.Memory.Take(n) {
		return false
	}
	b.taken += n
	return true
}

// giveMemory is the opposite of takeMemory.
func (b *Bond) giveMemory(n unit.Bytes) {
	b.taken -= n
	if b.cfg.Memory != nil {
		b.cfg.Memory.Give(n)
	}
}

// short reports whether this end must hold less: then streams are pushed back.
func (b *Bond) short() bool { return b.cfg.Memory != nil && b.cfg.Memory.Short() }

// ReleaseMemory gives back what the bond still has of Config.Memory, and takes nothing more
// from there: it is at its end.
func (b *Bond) ReleaseMemory() {
	if b.cfg.Memory != nil {
		b.cfg.Memory.Give(b.taken)
		b.cfg.Memory = nil
	}
}

// Taken returns the memory that the bond has taken: pages in use, marks of what
// has arrived in them, and datagrams that wait.
func (b *Bond) Taken() unit.Bytes { return b.taken }

// takeMarks takes the memory for the marks of the stream's received bytes, or gives it
// back. It reports false if there is none.
func (s *Stream) takeMarks() bool {
	cost := unit.Bytes(s.got.made) * marksCost
	switch held := s.marksTaken; {
	case cost < held:
		s.bond.giveMemory(held - cost)
	case cost > held && !s.bond.takeMemory(cost-held):
		return false
	}
	s.marksTaken = cost
	return true
}

// dropMarks forgets which bytes of the stream have arrived beyond a gap.
func (s *Stream) dropMarks() {
	s.got = arrived{}
	s.takeMarks()
}

// reserve makes sure that there is a page for each byte of [from, to), which begins at or
// after the first page. It reports false if there is no memory for one.
func (p *pages) reserve(from, to wire.DataSeq) bool {
	for at := from - from%pageSize; from < to && at < to; at += pageSize {
		i := int((at - p.base) / pageSize)
		for i >= len(p.list) {
			p.list = append(p.list, nil)
		}
		if p.list[i] == nil {
			if p.list[i] = p.pool.get(); p.list[i] == nil {
				return false
			}
		}
	}
	return true
}
