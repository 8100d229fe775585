// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"io"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// hostileDevice is a trusted device that writes arbitrary frames.
type hostileDevice struct {
	t    *testing.T
	sf   *subflow.Subflow
	buf  []byte
	sent unit.Bytes
	end  chan error // gets why the server ended the subflow
}

func newHostile(t *testing.T, s *Server, device *identity.Key, id byte) *hostileDevice {
	t.Helper()
	c, err := tcp.Dial(t.Context(), s.Addr().String(), tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sf, _, err := subflow.Join(
		t.Context(),
		c,
		device.ClientConfig(s.handshakes.key.Public(), wire.ALPN),
		wire.Join{Version: wire.Version, Bond: wire.BondID{id}, Subflow: 1, Device: "hostile"},
	)
	if err != nil {
		t.Fatal(err)
	}
	h := &hostileDevice{t: t, sf: sf, end: make(chan error, 1)}
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			if _, _, err := sf.Next(); err != nil {
				h.end <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		sf.Close()
		<-done
	})
	return h
}

// sendData sends bytes of a stream; it returns false when the server has ended the subflow.
func (h *hostileDevice) sendData(id wire.StreamID, at wire.DataSeq, b string) bool {
	h.buf = wire.Append(h.buf, wire.Data{Stream: id, Seq: at, Bytes: []byte(b)})
	return len(h.buf) < 32<<10 || h.flushFrames()
}

func (h *hostileDevice) flushFrames() bool {
	h.sent += unit.Bytes(len(h.buf))
	err := h.sf.Write(h.buf)
	h.buf = h.buf[:0]
	return err == nil
}

// finishJoin breaks the protocol, so that the server ends the subflow after processing everything
// before; the bond stays.
func (h *hostileDevice) finishJoin() {
	h.t.Helper()
	h.buf = wire.Append(h.buf, wire.Data{Stream: 1 << 40, Bytes: []byte("x")})
	h.flushFrames()
	<-h.end
}

// heapBytes returns the memory that is in use.
func heapBytes() unit.Bytes {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return unit.Bytes(m.HeapAlloc)
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startEchoes opens a stream of another device through the server to an echo destination; check
// moves bytes both ways.
func startEchoes(t *testing.T, s *Server) (check func()) {
	t.Helper()
	d, echo := startDesktop(t, s)
	c, err := d.Dial(echo, wire.ModeBond, 0)
	if err != nil {
		t.Fatal(err)
	}
	sent := byte(0)
	return func() {
		t.Helper()
		out := make([]byte, 300_000)
		for i := range out {
			sent = sent*5 + 1
			out[i] = sent
		}
		go func() { _, _ = c.Write(out) }()
		in := make([]byte, len(out))
		if _, err := io.ReadFull(c, in); err != nil {
			t.Fatalf("the stream of another device: %v", err)
		}
		if string(in) != string(out) {
			t.Fatal("the stream of another device has other bytes")
		}
	}
}

// TestHostilePages: a device that sends one byte into each page of its streams, over several bonds,
// gets only its share of the memory. The streams of another device go on.
func TestHostilePages(t *testing.T) {
	cfg := Default
	const bonds = 3 // each could hold 1 GB
	cfg.Memory, cfg.Allow = 64*unit.MB, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s, primary, _ := startServerWith(t, time.Minute, cfg)
	check := startEchoes(t, s)
	check()
	before, began := heapBytes(), cpuTime()
	var sent unit.Bytes
	for id := range byte(bonds) {
		h := newHostile(t, s, primary, id+1)
		for n := range 65_536 { // 1 GB of pages
			if !h.sendData(wire.StreamID(1+n/32), wire.DataSeq(n%32<<14+1), "x") {
				break
			}
		}
		h.finishJoin()
		sent += h.sent
		check()
	}
	grown := heapBytes() - before
	t.Logf("%v sent in %d bonds: the heap has grown by %v, %v of processor time", sent, bonds, grown, cpuTime()-began)
	if bound := cfg.Memory + 16*unit.MB; grown > bound { // uncounted memory, as of 2,048 streams of each bond
		t.Errorf("the heap has grown by %v, bound %v", grown, bound)
	}
	if used := s.accounts.accountOfDevice(primary.Public()).memory.Used(); used > cfg.Memory*3/4 ||
		used < cfg.Memory/2 {
		t.Errorf("the device has %v of %v", used, cfg.Memory)
	}
}

// TestHostileGaps: with every other byte of a stream, backwards, the server holds the stream's
// window and a bit for each of its bytes.
func TestHostileGaps(t *testing.T) {
	s, primary, _ := startServer(t, time.Minute)
	h := newHostile(t, s, primary, 1)
	before, began := heapBytes(), cpuTime()
	for n := range 131_000 {
		if !h.sendData(1, wire.DataSeq(wire.InitialWindow)-1-2*wire.DataSeq(n), "x") {
			break
		}
	}
	h.finishJoin()
	grown := heapBytes() - before
	t.Logf("%v sent: the heap has grown by %v, %v of processor time", h.sent, grown, cpuTime()-began)
	used, want := s.accounts.accountOfDevice(primary.Public()).memory.Used(), unit.Bytes(wire.InitialWindow)*9/8
	if used < want/2 || used > want || grown > want+unit.MB {
		t.Errorf("a stream of gaps has %v, want up to %v; the heap has grown by %v", used, want, grown)
	}
}

// TestMemoryComesBack: a bond that has lost its device and exceeds its share ends soon; another one
// is kept.
func TestMemoryComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Default
		cfg.Memory = 64 * unit.MB
		s, primary, _ := newServer(t, cfg)
		defer s.ln.Close()
		defer s.wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.wg.Go(func() { s.runReapLoop(ctx) })
		var bonds []*session
		for id := range byte(2) {
			device := primary.Public()
			device[0] += id
			s.sessions.mu.Lock()
			b := &session{key: bondKey{device, wire.BondID{id}}, account: s.accounts.accountOfDevice(device)}
			b.endpoint = endpoint.New(endpoint.Config{Share: b.account.memory})
			s.sessions.bonds[b.key] = b
			s.sessions.mu.Unlock()
			bonds = append(bonds, b)
		}
		if m := bonds[0].account.memory; !m.Take(40*unit.MB) || !m.IsShort() || bonds[1].account.memory.IsShort() {
			t.Fatal("the shares are not as they should be")
		}
		time.Sleep(30 * time.Second)
		s.sessions.mu.Lock()
		defer s.sessions.mu.Unlock()
		if s.sessions.bonds[bonds[0].key] != nil || s.sessions.bonds[bonds[1].key] == nil {
			t.Errorf("%d bonds are left", len(s.sessions.bonds))
		}
	})
}
