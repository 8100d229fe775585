// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"fmt"
	"slices"

	"mpbond/core/bond"
)

// bondExchanger carries exchanges over streams of a bond.
type bondExchanger struct {
	net      *bonded
	workload *Workload
	apps     []*bondApp
	order    []*bondApp // by stream ID
}

// bondApp is the app at both ends of a stream.
type bondApp struct {
	exchanger *bondExchanger
	streams   [2]*bond.Stream
	// By end: bytes to write, written and read so far.
	toWrite, written, received [2]uint64
	answers                    []answer // that the server owes, oldest first
	expected                   uint64   // bytes of all answers
	progress, done             func()
}

// exchangePayload implements exchanger. The app need not wait until the stream is known to be open:
// a primary answers at once for numeric addresses and for known destinations.
func (c *bondExchanger) exchangePayload(i int, up, down uint64, progress, done func()) {
	for i >= len(c.apps) {
		c.apps = append(c.apps, nil)
	}
	a := c.apps[i]
	e := c.net.ends[primary]
	if a == nil {
		s, err := e.bond.OpenStream("web:80")
		if err != nil {
			c.net.setFirstError(err)
			return
		}
		a = &bondApp{exchanger: c}
		a.streams[primary], s.User, c.apps[i] = s, a, a
		c.order = append(c.order, a)
	}
	a.toWrite[primary] += up
	a.answers = append(a.answers, answer{a.toWrite[primary], int(down)})
	a.expected += down
	a.progress, a.done = progress, done
	c.net.sim.scheduleTask(c.net.sim.now, func(*packet) {
		a.readAndWrite(primary)
		e.processBondEvents()
	}, nil)
}

// acceptServerStream takes a stream at the server.
func (c *bondExchanger) acceptServerStream(s *bond.Stream) {
	if int(s.ID()) > len(c.order) {
		c.net.setFirstError(fmt.Errorf("stream %d was never opened", s.ID()))
		return
	}
	a := c.order[s.ID()-1]
	a.streams[server], s.User = s, a
	s.SetOpened()
	a.readAndWrite(server)
}

// patternBlock is the length of the block that pattern repeats. It is prime, so that a byte that is
// lost, repeated or out of order shows.
const patternBlock = 65521

// pattern is what apps write, over and over: five equal blocks.
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

// readAndWrite lets the app of an end write and read what it can.
func (a *bondApp) readAndWrite(i int) {
	s := a.streams[i]
	if err := s.Err(); err != nil {
		a.exchanger.net.setFirstError(fmt.Errorf("stream %d: %w", s.ID(), err))
		return
	}
	if n := s.Readable(); n > 0 {
		s.ReadableSlices(n, func(b []byte) { a.checkReceived(i, b) })
		s.Consume(n)
		a.handleRead(i)
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

// checkReceived counts bytes that have arrived and fails unless they are those that come next.
func (a *bondApp) checkReceived(i int, b []byte) {
	for part := range slices.Chunk(b, patternBlock) {
		if !bytes.Equal(part, pattern[a.received[i]%patternBlock:][:len(part)]) {
			a.exchanger.net.setFirstError(fmt.Errorf("end %d reads other bytes at %d than were written", i, a.received[i]))
		}
		a.received[i] += uint64(len(part))
	}
	if a.received[i] > a.written[1-i] {
		a.exchanger.net.setFirstError(fmt.Errorf("end %d reads %d bytes of %d", i, a.received[i], a.written[1-i]))
	}
}

// handleRead acts on what the app of an end has read: the server answers complete requests, and the
// exchange is done when the primary has all answers.
func (a *bondApp) handleRead(i int) {
	if isData := (i == primary) == (a.exchanger.workload.Direction == Download); isData {
		a.progress()
	}
	for i == server && len(a.answers) > 0 && a.received[server] >= a.answers[0].after {
		a.toWrite[server] += uint64(a.answers[0].size)
		a.answers = a.answers[1:]
	}
	if i == primary && a.received[primary] == a.expected {
		a.exchanger.net.sim.scheduleTask(a.exchanger.net.sim.now, func(*packet) { a.done() }, nil)
	}
}
