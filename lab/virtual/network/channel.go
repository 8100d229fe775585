// SPDX-License-Identifier: Apache-2.0

package network

import (
	"mpbond/link/wire"
)

// Sizes of what is added to bytes of a subflow: a TLS record (RFC 8446 section 5.2: header, content
// type, tag), and a helper's report with its header and, on an HS-path, its authentication.
const (
	recordOverhead = 22
	maxRecord      = 16 << 10
	reportSize     = 40
	maxHopData     = 64<<10 - wire.HeaderLen
)

// piece is a part of a hop that its reader gets as a whole: a TLS record or a frame.
type piece struct {
	end        uint64 // position of its end among the bytes of the hop
	ciphertext int    // bytes of the subflow in it
	report     *wire.HopState
}

// channel is one direction of a hop of a subflow: pieces over TCP.
type channel struct {
	from, to *tcpEnd
	pieces   []piece
	head     int
	written  uint64
	sent     uint64 // ciphertext written, and read at the other end
	received uint64
	// accept takes a piece at the other end. It returns false if there is no room: call passArrived
	// when there is.
	accept func(p *piece) bool
	busy   bool // passArrived is running
}

func newHopChannel(from, to *tcpEnd) *channel {
	c := &channel{from: from, to: to}
	to.onData = c.passArrived
	return c
}

// queuePiece adds a piece that writeQueued writes.
func (c *channel) queuePiece(size, ciphertext int, report *wire.HopState) {
	c.written += uint64(size)
	c.sent += uint64(ciphertext)
	c.pieces = append(c.pieces, piece{c.written, ciphertext, report})
}

// writeQueued writes the queued pieces to TCP.
func (c *channel) writeQueued() { c.from.writeAppBytes(int(c.written - c.from.written)) }

// passArrived passes the pieces that have arrived to accept, until it has no room.
func (c *channel) passArrived() {
	if c.busy {
		return
	}
	c.busy = true
	for c.head < len(c.pieces) && c.pieces[c.head].end <= c.to.receiver.next {
		p := &c.pieces[c.head]
		if !c.accept(p) {
			break
		}
		c.received += uint64(p.ciphertext)
		c.to.recordAppRead(p.end)
		*p = piece{end: p.end}
		c.head++
	}
	c.busy = false
	if c.head > 64 && 2*c.head > len(c.pieces) {
		c.pieces = c.pieces[:copy(c.pieces, c.pieces[c.head:])]
		c.head = 0
	}
}

// sealedSize returns the size of n bytes in TLS records.
func sealedSize(n int) int { return n + (n+maxRecord-1)/maxRecord*recordOverhead }
