package bond

import "mpbond/link/wire"

// pageSize is the unit of buffer memory: small enough for a stream of a few
// bytes, large enough that a write of several is one good system call.
const pageSize = 16 << 10

type page [pageSize]byte

// pagePool keeps pages for the next use, up to a bound.
type pagePool struct {
	free   []*page
	inUse  int
	memory *memoryBudget // of pages in use; nil: nobody counts it
}

// Free pages are at most maxFreePages, and spareFreePages more than those in use.
const (
	maxFreePages   = 256 // 4 MB
	spareFreePages = 16
)

// get returns a page, nil if there is no memory for one.
func (p *pagePool) get() *page {
	if p.memory != nil && !p.memory.take(pageSize) {
		return nil
	}
	p.inUse++
	if n := len(p.free); n > 0 {
		pg := p.free[n-1]
		p.free = p.free[:n-1]
		return pg
	}
	return new(page)
}

func (p *pagePool) put(pg *page) {
	if pg == nil {
		return
	}
	p.uncountPage()
	p.free = append(p.free, pg)
	if n := min(maxFreePages, p.inUse+spareFreePages); len(p.free) > n {
		clear(p.free[n:])
		p.free = p.free[:n]
	}
}

// uncountPage counts a page in use less.
func (p *pagePool) uncountPage() {
	p.inUse--
	if p.memory != nil {
		p.memory.release(pageSize)
	}
}

// pages is a window of a byte stream, held in pages that are there only where
// something was written.
type pages struct {
	pool *pagePool
	base wire.DataSeq // position of the first page's first byte
	list []*page
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

// write stores b at a position that is not below what was released. Its pages must be
// reserved.
func (p *pages) write(at wire.DataSeq, b []byte) {
	for len(b) > 0 {
		i := int((at - p.base) / pageSize)
		n := copy(p.list[i][(at-p.base)%pageSize:], b)
		at += wire.DataSeq(n)
		b = b[n:]
	}
}

// appendTo appends the stored bytes [from, to) to b.
func (p *pages) appendTo(b []byte, from, to wire.DataSeq) []byte {
	p.eachSlice(from, to, func(s []byte) { b = append(b, s...) })
	return b
}

// eachSlice calls f for the stored bytes [from, to), piece by piece.
func (p *pages) eachSlice(from, to wire.DataSeq, f func([]byte)) {
	for from < to {
		off := (from - p.base) % pageSize
		n := min(pageSize-off, to-from)
		f(p.list[(from-p.base)/pageSize][off : off+n])
		from += n
	}
}

// releaseBefore gives up everything before a position.
func (p *pages) releaseBefore(before wire.DataSeq) {
	n := min(int((before-p.base)/pageSize), len(p.list))
	if before < p.base || n == 0 {
		return
	}
	for _, pg := range p.list[:n] {
		p.pool.put(pg)
	}
	left := copy(p.list, p.list[n:])
	clear(p.list[left:]) // or they would stay in memory
	p.list = p.list[:left]
	p.base += wire.DataSeq(n * pageSize)
}

// clear gives up everything, so that a stream that rests holds no page. The next
// write is at a position or beyond.
func (p *pages) clear(next wire.DataSeq) {
	p.dropAll()
	p.base = next - next%pageSize
}

// dropAll gives up everything.
func (p *pages) dropAll() {
	for _, pg := range p.list {
		p.pool.put(pg)
	}
	p.list = nil
}

// abandon gives up everything without reuse, for pages that somebody may still
// read.
func (p *pages) abandon() {
	for _, pg := range p.list {
		if pg != nil {
			p.pool.uncountPage()
		}
	}
	p.list = nil
}
