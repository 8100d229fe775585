// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"fmt"
	"slices"

	"mpbond/core/bond"
)

// bondCarrier carries exchanges over streams of a bond.
type bondCarrier struct {
	net      *bonded
	workload *Workload
	apps     []*bondApp
	order    []*bondApp // by stream ID
}

// bondApp is the app at both ends of a stream.
type bondApp struct {
	carrier *bondCarrier
	streams [2]*bond.Stream
	// By end: bytes to write, written and read so far.
	toWrite, written, got [2]uint64
	answers               []answer // that the server owes, oldest first
	wanted                uint64
	progress, done        func()
}

// exchange implements carrier. The app need not wait until the stream is known to be open: a primary
// answers at once for numeric addresses and for known destinations.
func (c *bondCarrier) exchange(i int, up, down uint64, progress, done func()) {
	for i >= len(c.apps) {
		c.apps = append(c.apps, nil)
	}
	a := c.apps[i]
	e := c.net.ends[primary]
	if a == nil {
		s, err := e.bond.OpenStream("web:80")
		if err != nil {
			c.net.fail(err)
			return
		}
		a = &bondApp{carrier: c}
		a.streams[primary], s.User, c.apps[i] = s, a, a
		c.order = append(c.order, a)
	}
	a.toWrite[primary] += up
	a.answers = append(a.answers, answer{a.toWrite[primary], int(down)})
	a.wanted += down
	a.progress, a.done = progress, done
	c.net.sim.schedule(c.net.sim.now, func(*packet) {
		a.handle(primary)
		e.process()
	}, nil)
}

// accept takes a stream at the server.
func (c *bondCarrier) accept(s *bond.Stream) {
	if int(s.ID()) > len(c.order) {
		c.net.fail(fmt.Errorf("stream %d was never opened", s.ID()))
		return
	}
	a := c.order[s.ID()-1]
	a.streams[server], s.User = s, a
	s.SetOpened()
	a.handle(server)
}

// pattern is what apps write: a block whose length is prime, again and again, so that a byte that is
// lost, repeated or out of order shows.
const patternBlock = 65521

var pattern = func() []byte {
	b := make([]byte, 5*patternBlock)
	x := uint32(1)
	for i := range patternBlock {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	for i := patternBlock; i < len(b); i++ {
		b[i] = b[i-patternBlock]
	}
	return b
}()

// handle lets the app of an end write and read what it can.
func (a *bondApp) handle(i int) {
	s := a.streams[i]
	if err := s.Err(); err != nil {
		a.carrier.net.fail(fmt.Errorf("stream %d: %w", s.ID(), err))
		return
	}
	if n := s.Readable(); n > 0 {
		s.ReadableSlices(n, func(b []byte) { a.check(i, b) })
		s.Consume(n)
		a.read(i)
	}
	for a.written[i] < a.toWrite[i] {
		at := a.written[i] % patternBlock
		n := s.Write(pattern[at:][:min(4*patternBlock, a.toWrite[i]-a.written[i])])
		if n == 0 {
			return
		}
		a.written[i] += uint64(n)
	}
}

// check counts bytes that have arrived and fails unless they are those that come next.
func (a *bondApp) check(i int, b []byte) {
	for part := range slices.Chunk(b, patternBlock) {
		if !bytes.Equal(part, pattern[a.got[i]%patternBlock:][:len(part)]) {
			a.carrier.net.fail(fmt.Errorf("end %d reads other bytes at %d than were written", i, a.got[i]))
		}
		a.got[i] += uint64(len(part))
	}
	if a.got[i] > a.written[1-i] {
		a.carrier.net.fail(fmt.Errorf("end %d reads %d bytes of %d", i, a.got[i], a.written[1-i]))
	}
}

// read handles what the app of an end has read.
func (a *bondApp) read(i int) {
	if isData := (i == primary) == (a.carrier.workload.Direction == Download); isData {
		a.progress()
	}
	for i == server && len(a.answers) > 0 && a.got[server] >= a.answers[0].after {
		a.toWrite[server] += uint64(a.answers[0].size)
		a.answers = a.answers[1:]
	}
	if i == primary && a.got[primary] == a.wanted {
		a.carrier.net.sim.schedule(a.carrier.net.sim.now, func(*packet) { a.done() }, nil)
	}
}
