// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bytes"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

func TestPages(t *testing.T) {
	pool := &pagePool{}
	p := pages{pool: pool}
	want := make([]byte, 5*pageSize+123)
	for i := range want {
		want[i] = byte(i * 7)
	}
	// Written out of order in odd pieces, read and released in order.
	for from := len(want) / 1000 * 1000; from >= 0; from -= 1000 {
		p.reservePages(wire.DataSeq(from), wire.DataSeq(min(from+1000, len(want))))
		p.writeBytesAt(wire.DataSeq(from), want[from:min(from+1000, len(want))])
	}
	if got := p.appendStored(nil, 0, wire.DataSeq(len(want))); !bytes.Equal(got, want) {
		t.Fatal("bytes read differ from those written")
	}
	p.freePagesBefore(3*pageSize + 5)
	if pool.inUse != 3 || len(pool.free) != 3 {
		t.Errorf("after release: %d pages in use, %d free; want 3 and 3", pool.inUse, len(pool.free))
	}
	if got := p.appendStored(nil, 3*pageSize+5, wire.DataSeq(len(want))); !bytes.Equal(got, want[3*pageSize+5:]) {
		t.Error("bytes after release differ")
	}
	p.freeAllPages()
	if pool.inUse != 0 {
		t.Errorf("%d pages leaked", pool.inUse)
	}
}

// TestIdleBondHoldsNoPage: the memory of a bond without streams is given back.
func TestIdleBondHoldsNoPage(t *testing.T) {
	n := newSim(t, "auto", 0)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 4*unit.Mbps)
	n.run(n.carry([]*transfer{{size: int(unit.MB)}, {size: int(unit.MB), up: true}}))
	n.settleEnd(0)
	for d, b := range n.ends {
		if memory, _ := b.BufferedBytes(); memory != 0 {
			t.Errorf("%s holds %v", endNames[d], memory)
		}
	}
}
