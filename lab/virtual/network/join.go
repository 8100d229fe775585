// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"mpbond/link/wire"
)

// handshakeSizes are the bytes of each flight of a subflow's handshake, from the primary first: TLS
// 1.3 with both certificates, and with MP_JOIN in the third flight and MP_OK in the last.
var handshakeSizes = [4]int{300, 1500, 1400, 150}

// join is the handshake of a subflow. Its bytes also give TCP its first round trips, and the helper
// something to report.
type join struct {
	net      *bonded
	id       wire.SubflowID
	helped   bool
	out      [2]*channel // from the primary and from the server
	in       [2]*channel // what arrives there
	flight   int         // under way
	received int         // bytes of it
	sentAt   time.Duration
	ends     [2]*subflowEnd
}

// sendFirstFlight begins the handshake.
func (j *join) sendFirstFlight() {
	for i := range j.in {
		j.in[i].accept = func(p *piece) bool { return j.receiveFlight(i, p) }
	}
	j.sendFlight()
}

// sendFlight sends the flight that is under way.
func (j *join) sendFlight() {
	side, n := j.flight%2, handshakeSizes[j.flight]
	if j.flight == 2 {
		j.sentAt = j.net.sim.now
	}
	size := n
	if j.helped {
		if size += wire.HeaderLen; side == primary {
			size = sealedSize(size)
		}
	}
	j.out[side].queuePiece(size, n, nil)
	j.out[side].writeQueued()
}

// receiveFlight takes a part of a flight. Reports that come before the subflow is joined are lost.
func (j *join) receiveFlight(side int, p *piece) bool {
	if j.received += p.ciphertext; p.ciphertext == 0 || j.received < handshakeSizes[j.flight] {
		return true
	}
	j.received = 0
	if j.flight++; j.flight >= 3 {
		j.addJoinedSubflow(side)
	}
	if j.flight < len(handshakeSizes) {
		j.sendFlight()
	}
	return true
}

// addJoinedSubflow adds the subflow at one end: at the server after MP_JOIN, at the primary after
// MP_OK.
func (j *join) addJoinedSubflow(side int) {
	e := j.net.ends[side]
	p := &subflowEnd{end: e, id: j.id, helped: j.helped, out: j.out[side], far: &subflowEnd{}}
	if j.ends[side] = p; j.ends[1-side] != nil {
		p.far, j.ends[1-side].far = j.ends[1-side], p
	}
	e.subflows = append(e.subflows, p)
	j.in[side].accept = p.receivePiece
	j.out[side].from.onWritable = func() {
		p.markSubflowIdle()
		e.processBondEvents()
	}
	e.bond.AddSubflow(j.id, j.helped, e.virtualNow())
	if side == primary {
		e.bond.SetJoinRTT(j.id, j.net.sim.now-j.sentAt)
	}
	p.markSubflowIdle()
	e.processSoon()
}
