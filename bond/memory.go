package bond

import (
	"mpbond/unit"
	"mpbond/wire"
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

const (
	// maxGaps bounds the ranges in which bytes of a stream have arrived beyond a gap. A
	// frame costs time in proportion to them. A segment has 1,400 bytes, so that as many
	// gaps are 11 MB that a silent subflow has in flight alone.
	maxGaps = 8192
	// spanCost is what a range takes.
	spanCost = 16
)

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

// Taken returns the memory that the bond has taken: pages in use, lists of ranges, and
// datagrams that wait.
func (b *Bond) Taken() unit.Bytes { return b.taken }

// takeRanges takes the memory for the ranges of the stream's received bytes, or gives it
// back. It reports whether there may be so many.
func (s *Stream) takeRanges() bool {
	if len(s.got) == 0 && cap(s.got) > 64 {
		s.got = nil
	}
	cost := unit.Bytes(cap(s.got)) * spanCost
	switch held := s.rangesTaken; {
	case cost < held:
		s.bond.giveMemory(held - cost)
	case cost > held && !s.bond.takeMemory(cost-held):
		return false
	}
	s.rangesTaken = cost
	return len(s.got) <= maxGaps
}

// dropRanges forgets the ranges of the stream's received bytes.
func (s *Stream) dropRanges() {
	s.got = nil
	s.takeRanges()
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
