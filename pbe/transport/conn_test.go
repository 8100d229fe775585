// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/pbe/cc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds waiting, however busy the machine is.
const testTimeout = time.Minute

func listenLocal(t testing.TB, opt Options) *Endpoint {
	t.Helper()
	ep, err := Listen("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ep.Close() })
	return ep
}

func dialLocal(t testing.TB, to net.Addr, opt Options) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := Dial(ctx, to.String(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Abort(); <-c.finished })
	return c
}

// connectVia returns both ends of a connection. The client dials the address that via returns for
// the server's address.
func connectVia(t testing.TB, opt Options, via func(net.Addr) net.Addr) (client, server *Conn) {
	t.Helper()
	ep := listenLocal(t, opt)
	c := dialLocal(t, via(ep.Addr()), opt)
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func connectPair(t testing.TB, opt Options) (client, server *Conn) {
	return connectVia(t, opt, func(a net.Addr) net.Addr { return a })
}

// steady uses a controller with a constant window, so that results do not depend on the load of the
// machine.
var steady = Options{Controller: func() cc.Controller { return fixedWindow{cc.NewCUBIC(), 100 * unit.KB} }}

// connectViaShim returns both ends of a connection with a shim between them.
func connectViaShim(t testing.TB, mangle func(dir int, p []byte) [][]byte) (client, server *Conn, s *shim) {
	client, server = connectVia(t, steady, func(a net.Addr) net.Addr {
		s = newShim(t, a, mangle)
		return s.front.LocalAddr()
	})
	return client, server, s
}

// exchangeStreams sends n bytes in both directions at once and checks what arrives.
func exchangeStreams(t testing.TB, a, b *Conn, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i, d := range [][2]*Conn{{a, b}, {b, a}} {
		data := make([]byte, n)
		rand.NewChaCha8([32]byte{byte(i)}).Read(data)
		all.Go(func() {
			if k, err := d[0].Write(data); err != nil {
				t.Errorf("writing: %d bytes, %v", k, err)
			}
		})
		all.Go(func() {
			got := make([]byte, n)
			d[1].SetReadDeadline(time.Now().Add(testTimeout))
			if k, err := io.ReadFull(d[1], got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("direction %d: %d of %d bytes, equal: %v, %v", i, k, n, bytes.Equal(got[:k], data[:k]), err)
			}
		})
	}
	all.Wait()
}

// snapshotCounts returns the counts of a running connection.
func (c *Conn) snapshotCounts() packetCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.counts
}

func TestLoopback(t *testing.T) {
	c, s := connectPair(t, Options{})
	exchangeStreams(t, c, s, 2<<20)
	c.CloseWrite()
	if got, err := io.ReadAll(s); err != nil || len(got) > 0 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := c.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing after CloseWrite: %v", err)
	}
	s.Write([]byte("thanks"))
	s.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "thanks" {
		t.Fatalf("%q, %v", got, err)
	}
	h, _ := c.Probe()
	if h.SRTT <= 0 || h.MinRTT <= 0 || h.Cwnd <= 0 || h.Acked != 2<<20 || h.Received != 2<<20+6 || h.Queue != 0 ||
		h.WireOut < 2<<20 || h.WireIn < 2<<20 {
		t.Errorf("%+v", h)
	}
}

// TestIPv6 connects over IPv6, and over IPv4 to a dual-stack socket.
func TestIPv6(t *testing.T) {
	ep, err := Listen(":0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	_, port, _ := net.SplitHostPort(ep.Addr().String())
	for _, host := range []string{"127.0.0.1", "::1"} {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if l, err := net.ListenPacket("udp", net.JoinHostPort(host, "0")); err != nil {
			t.Log("no ", host)
			continue
		} else {
			l.Close()
		}
		c, err := Dial(ctx, net.JoinHostPort(host, port), Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := ep.Accept()
		if err != nil {
			t.Fatal(err)
		}
		exchangeStreams(t, c, s, 100_000)
		c.Abort()
		<-c.finished
	}
}

// TestInjectedPackets: injected packets change nothing, wherever they come from. Neither do
// repeated packets of the peer.
func TestInjectedPackets(t *testing.T) {
	var seen [2][][]byte
	c, s, sh := connectViaShim(t, nil)
	sh.do(func() {
		sh.mangle = func(dir int, p []byte) [][]byte {
			if len(seen[dir]) < 200 {
				seen[dir] = append(seen[dir], p)
			}
			return [][]byte{p}
		}
	})
	exchangeStreams(t, c, s, 200_000)
	remote, r := s.RemoteAddr().String(), rand.New(rand.NewPCG(1, 1))
	elsewhere := loopback(t)
	defer elsewhere.Close()
	inject := func(dir int, p []byte) {
		sh.do(func() { sh.send(dir, p) })
		if dir == toServer {
			_, _ = elsewhere.WriteToUDPAddrPort(p, sh.server)
		}
	}
	sh.do(func() { sh.mangle = nil })
	for dir := range seen {
		for _, p := range seen[dir] {
			inject(dir, p) // a duplicate
			inject(dir, p[:r.IntN(len(p))])
			q := bytes.Clone(p)
			q[r.IntN(len(q))] ^= byte(1 + r.IntN(255))
			inject(dir, q)
			// A number that is new, and an end.
			q = append(appendDataHeader(nil, connID(p[1:1+connIDLen])), frameClose, 0)
			q[dataHeaderLen-2] = 0x77
			inject(dir, append(q, make([]byte, tagLen)...))
			for i := range q {
				q[i] = byte(r.Uint32())
			}
			q[0] = byte(r.IntN(6))
			inject(dir, q)
		}
	}
	exchangeStreams(t, c, s, 200_000)
	if a, b := c.snapshotCounts(), s.snapshotCounts(); a.duplicate < 20 || b.duplicate < 20 {
		t.Errorf("nothing was replayed: %+v, %+v", a, b)
	}
	if now := s.RemoteAddr().String(); now != remote {
		t.Errorf("the server moved to an injected address %s", now)
	}
}

// TestFollowsWhoAnswers: an attacker who repeats the client's newest packet from another address
// gets only a few short CHALLENGE packets. The connection stays at its address.
func TestFollowsWhoAnswers(t *testing.T) {
	c, s, sh := connectViaShim(t, nil)
	exchangeStreams(t, c, s, 100_000)
	waittest.Until(t, "all is acknowledged", func() bool { h, _ := c.Probe(); return h.Queue == 0 })
	elsewhere := loopback(t)
	defer elsewhere.Close()
	var sent int
	pass := func(dir int, p []byte) [][]byte { return [][]byte{p} }
	sh.do(func() { // the next packet is sent from elsewhere, others not yet
		sh.mangle = func(dir int, p []byte) [][]byte {
			if dir == toClient {
				return pass(dir, p)
			}
			if sent == 0 {
				sent = len(p)
				_, _ = elsewhere.WriteToUDPAddrPort(p, sh.server)
			}
			return nil
		}
	})
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	elsewhere.SetReadDeadline(time.Now().Add(testTimeout))
	for range maxChallenges {
		n, _, err := elsewhere.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		sh.do(func() {
			if sh.mangle = pass; n >= sent {
				t.Errorf("%d bytes answer %d", n, sent)
			}
		})
	}
	waittest.Until(t, "path validation ends",
		func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.route.validation.remaining == 0 })
	if addrOf(s.RemoteAddr()) != sh.address() {
		t.Error("the server moved without path validation")
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(s, one); err != nil {
		t.Fatal(err)
	}
	exchangeStreams(t, c, s, 100_000)
}

// TestRebinding: the connection survives a NAT that changes the client's address.
func TestRebinding(t *testing.T) {
	c, s, sh := connectViaShim(t, nil)
	exchangeStreams(t, c, s, 500_000)
	before := s.RemoteAddr().String()
	sh.rebind()
	exchangeStreams(t, c, s, 500_000)
	if now := s.RemoteAddr().String(); now == before {
		t.Error("the server still sends to ", now)
	}
}

// TestMigrate changes the client's socket during a transfer over a lossy network.
func TestMigrate(t *testing.T) {
	c, s, sh := connectViaShim(t, mangleAll(9))
	done := make(chan bool)
	go func() {
		exchangeStreams(t, c, s, 256<<10)
		close(done)
	}()
	other := listenLocal(t, c.route.ep.opt)
	before := s.RemoteAddr().String()
	if err := c.Migrate(other); err != nil {
		t.Fatal(err)
	}
	<-done
	waittest.Until(t, "the client is at the new address", func() bool {
		var at netip.AddrPort
		sh.do(func() { at = sh.client })
		return at == addrOf(other.Addr()) && c.LocalAddr().String() == other.Addr().String()
	})
	if s.RemoteAddr().String() != before {
		t.Error("the shim hides the client's address")
	}
	if err := s.Migrate(other); err == nil {
		t.Error("the end that was dialled can migrate")
	}
}

// TestServerFollows: on a direct path the server sends to the client's new address.
func TestServerFollows(t *testing.T) {
	c, s := connectPair(t, Options{})
	other := listenLocal(t, Options{})
	if err := c.Migrate(other); err != nil {
		t.Fatal(err)
	}
	exchangeStreams(t, c, s, 1<<20)
	waittest.Until(t, "the server follows", func() bool { return s.RemoteAddr().String() == other.Addr().String() })
}

// TestClose: written bytes arrive before the end. Afterwards neither side can read or write.
func TestClose(t *testing.T) {
	c, s := connectPair(t, steady)
	data := bytes.Repeat([]byte("0123456789"), 200_000)
	c.Write(data)
	c.Close()
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(data), err)
	}
	<-c.finished
	for what, err := range map[string]error{"read": errorOf(c.Read(make([]byte, 1))), "write": errorOf(c.Write(data)),
		"wait": c.WaitWritable(), "deadline": c.SetDeadline(time.Now())} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	waittest.Until(t, "the peer receives a RESET", func() bool {
		return errors.Is(s.WaitWritable(), syscall.ECONNRESET)
	})
	<-s.finished
}

// TestCloseWhileLost: the end of the stream may be acknowledged before all its bytes.
func TestCloseWhileLost(t *testing.T) {
	c, s, sh := connectViaShim(t, nil)
	lost := 0
	sh.do(func() {
		sh.mangle = func(dir int, p []byte) [][]byte {
			if dir == toServer && len(p) >= 1000 && lost < 2 {
				lost++
				return nil
			}
			return [][]byte{p}
		}
	})
	data := bytes.Repeat([]byte("0123456789"), 500)
	c.Write(data)
	c.Close()
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(data), err)
	}
}

// TestPathValidation: only the answer to a CHALLENGE from the challenged address counts, once. A
// packet from another address does not replace a running validation.
func TestPathValidation(t *testing.T) {
	here, there := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")
	var a pathValidation
	if a.acceptPathResponse(here, a.data[:]) || a.isChallengeDue(time.Second) {
		t.Error("a response without a challenge is accepted")
	}
	a.startValidation(here, time.Second)
	data := a.data
	a.startValidation(there, time.Second)
	if a.addr != here || !a.isChallengeDue(time.Second) {
		t.Errorf("the attempt is at %v", a.addr)
	}
	a.onChallengeSent(time.Second)
	if a.isChallengeDue(time.Second + challengeInterval - 1) {
		t.Error("the next question is too early")
	}
	if a.acceptPathResponse(there, data[:]) || a.acceptPathResponse(here, []byte("whatever")) {
		t.Error("a wrong response is accepted")
	}
	for range maxChallenges - 1 {
		a.onChallengeSent(2 * time.Second)
	}
	a.startValidation(there, 2*time.Second)
	if a.addr != here {
		t.Error("the last question is not waited for")
	}
	if !a.acceptPathResponse(here, data[:]) || a.acceptPathResponse(here, data[:]) {
		t.Error("the answer does not count once")
	}
	a.startValidation(there, time.Minute)
	if a.addr != there || a.data == data {
		t.Error("no other attempt is made")
	}
}

func errorOf(_ int, err error) error { return err }

// TestAbort ends both ends at once and wakes waiting goroutines.
func TestAbort(t *testing.T) {
	c, s := connectPair(t, Options{})
	errs := make(chan error, 2)
	for _, x := range []*Conn{c, s} {
		go func() { errs <- errorOf(x.Read(make([]byte, 1))) }()
	}
	c.Abort()
	a, b := <-errs, <-errs
	if errors.Is(b, net.ErrClosed) {
		a, b = b, a
	}
	if !errors.Is(a, net.ErrClosed) || !errors.Is(b, syscall.ECONNRESET) {
		t.Errorf("%v, %v", a, b)
	}
}

// TestEndpointClose ends Accept and all connections.
func TestEndpointClose(t *testing.T) {
	ep := listenLocal(t, Options{})
	c := dialLocal(t, ep.Addr(), Options{})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ep.Close()
	ep.Close()
	if _, err := ep.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if _, err := ep.Dial(t.Context(), addrOf(ep.Addr())); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestDeadlines checks the deadlines of net.Conn.
func TestDeadlines(t *testing.T) {
	c, s := connectPair(t, Options{})
	c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	c.SetReadDeadline(time.Time{})
	s.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	// Nobody reads at the other end, so that writing stops.
	type result struct {
		n   int
		err error
	}
	done := make(chan result)
	go func() {
		n, err := c.Write(make([]byte, maxSendBuffer+initialWindow+1))
		done <- result{n, err}
	}()
	waittest.Until(t, "writing blocks", func() bool {
		h, _ := c.Probe()
		return h.Queue > maxSendBuffer-defaultLowat && h.Acked == initialWindow
	})
	c.SetWriteDeadline(time.Now())
	if r := <-done; !errors.Is(r.err, os.ErrDeadlineExceeded) || r.n <= maxSendBuffer+initialWindow-int(defaultLowat) ||
		r.n > maxSendBuffer+initialWindow {
		t.Errorf("%d, %v", r.n, r.err)
	}
}

// TestCork: bytes written between Cork and Flush are sent together.
func TestCork(t *testing.T) {
	c, s := connectPair(t, Options{})
	c.Cork()
	for range 100 {
		c.Write([]byte("0123456789"))
	}
	if h, _ := c.Probe(); h.Queue != 0 {
		t.Errorf("%v has left", h.Queue)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(make([]byte, 2000)); n != 1000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestRadio: the receiver's feedback reaches the sender.
func TestRadio(t *testing.T) {
	want := cc.CellFeedback{TransportRate: 50 * unit.Mbps, FairRate: 10 * unit.Mbps, Internet: true, Activated: 2,
		Inactive: true, Invalid: true}
	feedback := &fixedFeedback{radio: want}
	ep := listenLocal(t, Options{Feedback: func() Feedback { return feedback }})
	c := dialLocal(t, ep.Addr(), Options{})
	waittest.Until(t, "the feedback arrives", func() bool {
		c.Write([]byte("x"))
		return c.Radio() == want
	})
	if feedback.received.Load() < 50 {
		t.Errorf("%d bytes were reported", feedback.received.Load())
	}
}

// fixedFeedback is a Feedback with constant reports.
type fixedFeedback struct {
	radio  cc.CellFeedback
	closed atomic.Bool
	// received counts the bytes of packets, with headers.
	received atomic.Int64
}

func (s *fixedFeedback) OnPacket(_, _, _ time.Duration, size unit.Bytes) cc.CellFeedback {
	s.received.Add(int64(size))
	return s.radio
}

func (s *fixedFeedback) Close() { s.closed.Store(true) }

// TestFeedbackMoves: after a migration the feedback of the new endpoint is used. At the end it is
// closed.
func TestFeedbackMoves(t *testing.T) {
	here, there := &fixedFeedback{radio: cc.CellFeedback{TransportRate: 10 * unit.Mbps}},
		&fixedFeedback{radio: cc.CellFeedback{TransportRate: 20 * unit.Mbps}}
	ep := listenLocal(t, Options{})
	c := dialLocal(t, ep.Addr(), Options{Feedback: func() Feedback { return here }})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	tells := func(want cc.CellFeedback) func() bool {
		return func() bool { s.Write([]byte("x")); return s.Radio() == want }
	}
	waittest.Until(t, "the first endpoint's feedback arrives", tells(here.radio))
	other, err := Listen("127.0.0.1:0", Options{Feedback: func() Feedback { return there }})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := c.Migrate(other); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the second endpoint's feedback arrives", tells(there.radio))
	if !here.closed.Load() || there.closed.Load() {
		t.Errorf("closed: here %v, there %v", here.closed.Load(), there.closed.Load())
	}
	c.Abort()
	waittest.Until(t, "the feedback is closed", there.closed.Load)
}

// TestSubflow runs a subflow over a connection.
func TestSubflow(t *testing.T) {
	var _ subflow.Transport = (*Conn)(nil)
	primary, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	server, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	a, b, _ := connectViaShim(t, mangleAll(3))
	type result struct {
		s   *subflow.Subflow
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		s, _, err := subflow.Accept(t.Context(), b, server.ServerConfig(wire.ALPN,
			func(k identity.PublicKey) bool { return k == primary.Public() }),
			func(identity.PublicKey, wire.Join) (wire.OK, error) { return wire.OK{Instance: 7}, nil })
		accepted <- result{s, err}
	}()
	p, ok, err := subflow.Join(t.Context(), a, primary.ClientConfig(server.Public(), wire.ALPN),
		wire.Join{Version: wire.Version, Bond: wire.BondID{1}, Subflow: 3, Device: "laptop"})
	r := <-accepted
	if err := errors.Join(err, r.err); err != nil || ok.Instance != 7 {
		t.Fatal(ok, err)
	}
	defer p.Close()
	defer r.s.Close()
	if h, err := p.Probe(); err != nil || h.Acked == 0 || !strings.HasPrefix(p.RemoteAddr().String(), "127.0.0.1:") {
		t.Errorf("%+v, %v", h, err)
	}
}
