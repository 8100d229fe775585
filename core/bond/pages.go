// SPDX-License-Identifier: Apache-2.0

package bond

import "mpbond/link/wire"

// pageSize is the unit of buffer memory: small enough for a stream of a few bytes, large enough for
// efficient system calls on several pages.
const pageSize = 16 << 10

type page [pageSize]byte

// pagePool keeps free pages for reuse, up to a bound, and none while the bond has no stream. Each bond has its own: a
// page is never used for another device.
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

// allocatePage returns a page, or nil if there is no memory.
func (p *pagePool) allocatePage() *page {
	if p.memory != nil && !p.memory.takeFromBudget(pageSize) {
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

// recyclePage returns a page to the pool; nil is ignored.
func (p *pagePool) recyclePage(pg *page) {
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
		p.memory.returnToBudget(pageSize)
	}
}

// pages holds a window of a byte stream. Only written parts have pages.
type pages struct {
	pool *pagePool
	base wire.DataSeq // position of the first page's first byte
	list []*page
}

// reservePages allocates the missing pages of [from, to), which must not start before the first
// page. It returns the end of what has pages: less than to if there is no memory.
func (p *pages) reservePages(from, to wire.DataSeq) (end wire.DataSeq) {
	for at := from - from%pageSize; from < to && at < to; at += pageSize {
		i := int((at - p.base) / pageSize)
		for i >= len(p.list) {
			p.list = append(p.list, nil)
		}
		if p.list[i] == nil {
			if p.list[i] = p.pool.allocatePage(); p.list[i] == nil {
				return max(from, at)
			}
		}
	}
	return to
}

// writeBytesAt stores b at a position that was not released. Its pages must be reserved.
func (p *pages) writeBytesAt(at wire.DataSeq, b []byte) {
	for len(b) > 0 {
		i := int((at - p.base) / pageSize)
		n := copy(p.list[i][(at-p.base)%pageSize:], b)
		at += wire.DataSeq(n)
		b = b[n:]
	}
}

// appendStored appends the stored bytes [from, to) to b.
func (p *pages) appendStored(b []byte, from, to wire.DataSeq) []byte {
	p.eachPageSlice(from, to, func(s []byte) { b = append(b, s...) })
	return b
}

// eachPageSlice calls f for each stored piece of [from, to).
func (p *pages) eachPageSlice(from, to wire.DataSeq, f func([]byte)) {
	for from < to {
		off := (from - p.base) % pageSize
		n := min(pageSize-off, to-from)
		f(p.list[(from-p.base)/pageSize][off : off+n])
		from += n
	}
}

// freePagesBefore frees the pages before a position.
func (p *pages) freePagesBefore(before wire.DataSeq) {
	n := min(int((before-p.base)/pageSize), len(p.list))
	if before < p.base || n == 0 {
		return
	}
	for _, pg := range p.list[:n] {
		p.pool.recyclePage(pg)
	}
	left := copy(p.list, p.list[n:])
	clear(p.list[left:]) // so that their memory can be freed
	p.list = p.list[:left]
	p.base += wire.DataSeq(n * pageSize)
}

// restartPagesAt frees all pages, so that an idle stream holds none. The next write must be at next
// or beyond.
func (p *pages) restartPagesAt(next wire.DataSeq) {
	p.freeAllPages()
	p.base = next - next%pageSize
}

// freeAllPages frees all pages.
func (p *pages) freeAllPages() {
	for _, pg := range p.list {
		p.pool.recyclePage(pg)
	}
	p.list = nil
}

// abandonPages gives up all pages without reuse, since a reader may still use them.
func (p *pages) abandonPages() {
	for _, pg := range p.list {
		if pg != nil {
			p.pool.uncountPage()
		}
	}
	p.list = nil
}
