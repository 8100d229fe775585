// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/link/congestion"
)

// congestionChooser applies the choice of a congestion.Selector to a connection. Conn.mu guards its
// fields, except current.
type congestionChooser struct {
	selector *congestion.Selector // nil: the choice is final
	hop      hopKey
	began    time.Time
	current  atomic.Pointer[congestion.Choice]
}

// congestionHopKey names what congestion.Memory is about: the hop from a local address, or
// interface if the connection is bound to one, to a host.
type hopKey struct {
	local string
	peer  netip.Addr
}

// maxHopMemories bounds the hops that hopMemories remembers. Beyond it all are forgotten.
const maxHopMemories = 1024

// hopMemories is what this process has learned about hops, so that the next subflow of a hop
// begins with it.
var hopMemories = struct {
	sync.Mutex
	byHop map[hopKey]congestion.Memory
}{byHop: map[hopKey]congestion.Memory{}}

// startCongestionChoice lets the hop decide about its congestion control, if the system starts with
// CUBIC and lets this process use BBR. Otherwise the system's choice stays.
func (c *Conn) startCongestionChoice() {
	if name, err := c.congestionName(); err != nil || name != congestion.CUBIC.String() || !mayUseBBR() {
		return
	}
	h := &congestionChooser{hop: c.congestionHopKey(), began: time.Now()}
	hopMemories.Lock()
	h.selector = congestion.Resume(hopMemories.byHop[h.hop])
	hopMemories.Unlock()
	if h.selector.Choice().Algorithm != congestion.CUBIC && c.applyCongestion(h) != nil {
		return
	}
	h.publishChoice()
	c.congestion = h
}

// mayUseBBR reports whether this process may use BBR. It asks a socket of its own: to try BBR makes
// a connection pace its packets, also under CUBIC afterwards.
var mayUseBBR = sync.OnceValue(func() bool { return checkCongestion(congestion.BBR.String()) == nil })

// congestionHopKey returns the key by which the choice of congestion control is remembered: the
// interface, or else the local address, and the peer's address.
func (c *Conn) congestionHopKey() (k hopKey) {
	if a, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil {
		k.local = a.Addr().String()
	}
	if c.device != "" {
		k.local = c.device
	}
	if a, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		k.peer = a.Addr()
	}
	return k
}

// observeCongestion gives the selector a sample. mu must be held.
func (c *Conn) observeCongestion() {
	h := c.congestion
	if h == nil || h.selector == nil {
		return
	}
	var s congestion.Sample
	if controlRawConn(c.raw, func(fd int) (err error) { s, err = readCongestionSample(fd); return err }) != nil {
		return
	}
	s.At = time.Since(h.began)
	if !h.selector.Add(s) {
		return
	}
	if c.applyCongestion(h) != nil {
		h.selector = nil // the system has withdrawn its permission
		return
	}
	h.publishChoice()
	hopMemories.Lock()
	defer hopMemories.Unlock()
	if len(hopMemories.byHop) >= maxHopMemories {
		clear(hopMemories.byHop)
	}
	hopMemories.byHop[h.hop] = h.selector.Memory()
}

// congestionName returns the system's name of the connection's congestion control.
func (c *Conn) congestionName() (name string, err error) {
	err = controlRawConn(c.raw, func(fd int) (err error) { name, err = readCongestionName(fd); return err })
	return name, err
}

func (c *Conn) applyCongestion(h *congestionChooser) error {
	name := h.selector.Choice().Algorithm.String()
	return controlRawConn(c.raw, func(fd int) error { return setCongestionName(fd, name) })
}

// publishChoice makes the selector's choice visible to other goroutines.
func (h *congestionChooser) publishChoice() {
	choice := h.selector.Choice()
	h.current.Store(&choice)
}

// CongestionChoice returns the congestion control that the hop has led to; ok is false if it is not
// chosen by the hop.
func (c *Conn) CongestionChoice() (choice congestion.Choice, ok bool) {
	if c.congestion == nil {
		return choice, false
	}
	return *c.congestion.current.Load(), true
}
