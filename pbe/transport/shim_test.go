// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// toServer and toClient are the directions through a shim.
const toServer, toClient = 0, 1

// shim is a network of one hop between a client and a server, over real sockets.
//
//	client ─ front │ back ─ server
type shim struct {
	t      testing.TB
	front  *net.UDPConn
	server netip.AddrPort

	mu     sync.Mutex
	back   *net.UDPConn
	client netip.AddrPort
	// mangle returns the packets to forward for one packet, which it may keep; nil forwards all. It
	// is called with mu held.
	mangle func(dir int, p []byte) [][]byte
	done   sync.WaitGroup
}

func loopback(t testing.TB) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadBuffer(socketBuffer)
	return c
}

func addrOf(a net.Addr) netip.AddrPort {
	p := a.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// newShim starts a shim before a server. It ends with the test.
func newShim(t testing.TB, server net.Addr, mangle func(dir int, p []byte) [][]byte) *shim {
	s := &shim{t: t, front: loopback(t), back: loopback(t), server: addrOf(server), mangle: mangle}
	s.done.Go(func() { s.carry(s.front, toServer) })
	back := s.back
	s.done.Go(func() { s.carry(back, toClient) })
	t.Cleanup(func() {
		s.front.Close()
		s.mu.Lock()
		s.back.Close()
		s.mu.Unlock()
		s.done.Wait()
	})
	return s
}

func (s *shim) carry(from *net.UDPConn, dir int) {
	buf := make([]byte, 1<<16)
	for {
		n, a, err := from.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		if dir == toServer {
			s.client = a
		}
		out := [][]byte{buf[:n]}
		if s.mangle != nil {
			out = s.mangle(dir, bytes.Clone(buf[:n]))
		}
		for _, p := range out {
			s.send(dir, p)
		}
		s.mu.Unlock()
	}
}

// send forwards a packet. mu must be held.
func (s *shim) send(dir int, p []byte) {
	if dir == toServer {
		_, _ = s.back.WriteToUDPAddrPort(p, s.server)
	} else {
		_, _ = s.front.WriteToUDPAddrPort(p, s.client)
	}
}

// do runs f while no packet is forwarded.
func (s *shim) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// address returns the client's address as the server sees it.
func (s *shim) address() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return addrOf(s.back.LocalAddr())
}

// rebind changes the client's address at the server, like a NAT that has lost its mapping.
func (s *shim) rebind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back.Close()
	back := loopback(s.t)
	s.back = back
	s.done.Go(func() { s.carry(back, toClient) })
}

// networkFaults are the shares of packets with each fault.
type networkFaults struct{ lose, double, overtake, damage float64 }

// mangleAll causes all kinds of faults.
func mangleAll(seed uint64) func(dir int, p []byte) [][]byte {
	return networkFaults{0.02, 0.02, 0.03, 0.02}.mangle(seed, new(faultCounts))
}

// faultCounts counts faults. It is guarded by the shim's mu.
type faultCounts struct{ lost, doubled, overtaken, damaged int }

// mangle returns a function for a shim. It drops packets longer than those of Ethernet.
func (h networkFaults) mangle(seed uint64, n *faultCounts) func(dir int, p []byte) [][]byte {
	r := rand.New(rand.NewPCG(seed, 7))
	var late [2][][]byte
	return func(dir int, p []byte) (out [][]byte) {
		x := r.Float64()
		is := func(part float64) bool { x -= part; return x < 0 }
		switch {
		case len(p) > 1472:
		case is(h.lose):
			n.lost++
		case is(h.double):
			n.doubled++
			out = [][]byte{p, p}
		case len(late[dir]) < 4 && is(h.overtake):
			n.overtaken++
			late[dir] = append(late[dir], p)
			return nil
		case is(h.damage):
			n.damaged++
			p[r.IntN(len(p))] ^= byte(1 << r.IntN(8))
			out = [][]byte{p}
		default:
			out = [][]byte{p}
		}
		if r.Float64() < 0.2 {
			out, late[dir] = append(out, late[dir]...), nil
		}
		return out
	}
}
