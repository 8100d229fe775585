// SPDX-License-Identifier: Apache-2.0

package bond

import "mpbond/link/wire"

// pageSize is the unit of buffer memory: small enough for a stream of a few bytes, large enough for
// efficient system calls on several pages.
const pageSize = 16 << 10

type page [pageSize]byte

// pagePool keeps free pages for reuse, up to a bound.
type pagePool struct {
	free   []*page
	inUse  int
	memory *memoryBudget // for pages in use; nil: not counted
}

// The pool keeps at most maxFreePages free pages, and at most spareFreePages more than are in use.
const (
	maxFreePages   = 256 // 4 MB
	spareFreePages = 16
)

// get returns a page, or nil if there is no memory.
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

// put returns a page to the pool; nil is ignored.
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

// uncountPage counts one page less in use.
func (p *pagePool) uncountPage() {
	p.inUse--
	if p.memory != nil {
		p.memory.release(pageSize)
	}
}

// pages holds a window of a byte stream. Only written parts have pages.
type pages struct {
	pool *pagePool
	base wire.DataSeq // position of the first page's first byte
	list []*page
}

// reserve allocates the missing pages of [from, to), which must not start before the first page. It
// returns false if there is no memory.
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

// write stores b at a position that was not released. Its pages must be reserved.
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

// eachSlice calls f for each stored piece of [from, to).
func (p *pages) eachSlice(from, to wire.DataSeq, f func([]byte)) {
	for from < to {
		off := (from - p.base) % pageSize
		n := min(pageSize-off, to-from)
		f(p.list[(from-p.base)/pageSize][off : off+n])
		from += n
	}
}

// releaseBefore frees the pages before a position.
func (p *pages) releaseBefore(before wire.DataSeq) {
	n := min(int((before-p.base)/pageSize), len(p.list))
	if before < p.base || n == 0 {
		return
	}
	for _, pg := range p.list[:n] {
		p.pool.put(pg)
	}
	left := copy(p.list, p.list[n:])
	clear(p.list[left:]) // so that their memory can be freed
	p.list = p.list[:left]
	p.base += wire.DataSeq(n * pageSize)
}

// clear frees all pages, so that an idle stream holds none. The next write must be at next or
// beyond.
func (p *pages) clear(next wire.DataSeq) {
	p.dropAll()
	p.base = next - next%pageSize
}

// dropAll frees all pages.
func (p *pages) dropAll() {
	for _, pg := range p.list {
		p.pool.put(pg)
	}
	p.list = nil
}

// abandon gives up all pages without reuse, since a reader may still use them.
func (p *pages) abandon() {
	for _, pg := range p.list {
		if pg != nil {
			p.pool.uncountPage()
		}
	}
	p.list = nil
}
