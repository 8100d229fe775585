// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"mpbond/base/porttest"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
	"mpbond/node/intercept"
)

// startUDPEcho answers each datagram with its content, from the address it was sent to. It reports
// the senders on from.
func startUDPEcho(t *testing.T, host string) (addr string, from chan netip.AddrPort) {
	t.Helper()
	c, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip(err)
	}
	from = make(chan netip.AddrPort, 64)
	done := make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			n, a, err := c.(*net.UDPConn).ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			select {
			case from <- netip.AddrPortFrom(a.Addr().Unmap(), a.Port()):
			default:
			}
			_, _ = c.(*net.UDPConn).WriteToUDPAddrPort(b[:n], a)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().String(), from
}

// openPacketFlow opens a datagram flow that ends with the test.
func (w *testbed) openPacketFlow() intercept.PacketConn {
	w.Helper()
	c, err := w.p.DialPackets(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
	return c
}

func TestDatagrams(t *testing.T) {
	w := newTestbed(t)
	w.scfg.Allow = append(w.scfg.Allow, netip.MustParsePrefix("::1/128"))
	w.startAll("phone")
	c := w.openPacketFlow()
	buf := make([]byte, 65536)
	one, from := startUDPEcho(t, "127.0.0.1")
	other, otherFrom := startUDPEcho(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(one)
	for _, to := range []string{one, other, "localhost:" + port} {
		for _, n := range []int{0, 1, 1400, 65507} {
			b, _ := io.ReadAll(rig.Noise(int64(n)))
			if err := c.Send(b, to); err != nil {
				t.Fatal(err)
			}
			got, a, err := c.Receive(buf)
			if err != nil || !bytes.Equal(buf[:got], b) || a.Addr().String() != "127.0.0.1" {
				t.Errorf("%d bytes to %s came back as %d from %v, %v", n, to, got, a, err)
			}
		}
	}
	if a, b := <-from, <-otherFrom; a != b {
		t.Errorf("two destinations see the ports %v and %v", a, b)
	}
	if _, err := net.Listen("tcp", "[::1]:0"); err == nil {
		six, _ := startUDPEcho(t, "::1")
		if err := c.Send([]byte("six"), six); err != nil {
			t.Fatal(err)
		}
		if n, a, err := c.Receive(buf); err != nil || string(buf[:n]) != "six" || a.String() != six {
			t.Errorf("IPv6: %q from %v, %v", buf[:n], a, err)
		}
	}
}

// TestRedundantDatagrams: by a rule a flow sends everything on two subflows, both ways, and nothing
// arrives twice.
func TestRedundantDatagrams(t *testing.T) {
	w := newTestbed(t)
	echo, _ := startUDPEcho(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(echo)
	w.pcfg.Redundant = []string{"port:" + port}
	w.startAll("phone")
	c := w.openPacketFlow()
	buf := make([]byte, 100)
	for i := range byte(20) {
		if err := c.Send([]byte{i}, echo); err != nil {
			t.Fatal(err)
		}
		if n, _, err := c.Receive(buf); err != nil || n != 1 || buf[0] != i {
			t.Fatalf("datagram %d came back as %v, %v", i, buf[:n], err)
		}
	}
	rig.Eventually(t, func() error {
		for who, wasted := range map[string]unit.Bytes{"server": w.s.Status(false)[0].WastedBytes["sent_redundantly"],
			"primary": w.p.Status(false).WastedBytes["sent_redundantly"]} {
			if wasted == 0 {
				return fmt.Errorf("the %s has sent nothing redundantly", who)
			}
		}
		return nil
	})
}

// TestDatagramsAreRefused where streams are refused.
func TestDatagramsAreRefused(t *testing.T) {
	w := newTestbed(t)
	w.scfg.Allow = nil
	w.startAll()
	near, from := startUDPEcho(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(near)
	for dest, code := range map[string]wire.Code{
		near: wire.CodeForbidden, "localhost:" + port: wire.CodeForbidden, "192.0.2.1:0": wire.CodeForbidden,
		"10.0.0.1:53": wire.CodeForbidden, "255.255.255.255:9": wire.CodeForbidden,
	} {
		c := w.openPacketFlow()
		if err := c.Send([]byte("x"), dest); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Receive(make([]byte, 10))
		var r *intercept.PacketRefusal
		if !errors.As(err, &r) || r.Code != code || r.Dest != dest {
			t.Errorf("%s: %v, want code %v", dest, err, code)
		}
	}
	select {
	case a := <-from:
		t.Errorf("a datagram reached a private destination, from %v", a)
	default:
	}
}

// TestDatagramsToAClosedPort: the device receives the network's error, and the flow continues to
// other ports.
func TestDatagramsToAClosedPort(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	echo, _ := startUDPEcho(t, "127.0.0.1")
	closed := porttest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(closed)
	c := w.openPacketFlow()
	b := make([]byte, 10)
	for i := range byte(3) {
		for _, dest := range []string{closed, "localhost:" + port} {
			if err := c.Send([]byte("x"), dest); err != nil {
				t.Fatal(err)
			}
			_, _, err := c.Receive(b)
			var r *intercept.PacketRefusal
			if !errors.As(err, &r) || r.Code != wire.CodeConnRefused || !strings.HasSuffix(r.Dest, ":"+port) {
				t.Errorf("%s: %v", dest, err)
			}
		}
		if err := c.Send([]byte{i}, echo); err != nil {
			t.Fatal(err)
		}
		if n, _, err := c.Receive(b); err != nil || n != 1 || b[0] != i {
			t.Errorf("the next datagram: %v, %v", b[:n], err)
		}
	}
}

// TestDatagramFlowsAreBounded: the server limits the number of flows.
func TestDatagramFlowsAreBounded(t *testing.T) {
	w := newTestbed(t)
	w.scfg.MaxFlows = 3
	w.startAll()
	echo, _ := startUDPEcho(t, "127.0.0.1")
	for i := range 5 {
		c := w.openPacketFlow()
		if err := c.Send([]byte(strconv.Itoa(i)), echo); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Receive(make([]byte, 10))
		var r wire.Reset
		if i < 3 && err != nil || i >= 3 && (!errors.As(err, &r) || r.Code != wire.CodeLimit) {
			t.Errorf("flow %d: %v", i+1, err)
		}
	}
}

// TestDatagramFlowAfterRestart: a flow ends with its server, and a new one works.
func TestDatagramFlowAfterRestart(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	echo, _ := startUDPEcho(t, "127.0.0.1")
	c := w.openPacketFlow()
	if err := c.Send([]byte("x"), echo); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if _, _, err := c.Receive(buf); err != nil {
		t.Fatal(err)
	}
	w.server.stop()
	var r wire.Reset
	if _, _, err := c.Receive(buf); !errors.As(err, &r) {
		t.Errorf("the flow is still open without its server: %v", err)
	}
	w.startServer()
	w.awaitSubflows("laptop")
	c = w.openPacketFlow()
	if err := c.Send([]byte("again"), echo); err != nil {
		t.Fatal(err)
	}
	if n, _, err := c.Receive(buf); err != nil || string(buf[:n]) != "again" {
		t.Errorf("after the restart: %q, %v", buf[:n], err)
	}
}

// TestSOCKSDatagrams: an app's UDP association works over real devices, also to destinations that
// the server refuses.
func TestSOCKSDatagrams(t *testing.T) {
	w := newTestbed(t)
	w.scfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	w.startAll("phone")
	edge := intercept.New(intercept.Config{Dialer: w.p, Packets: w.p, Log: w.primary.log.Logger(),
		Direct: new(net.Dialer).DialContext})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- edge.ServeProxy(ln) }()
	t.Cleanup(func() {
		edge.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil || reply[3] != 0 {
		t.Fatalf("reply %x, %v", reply, err)
	}
	relay, _, _ := wire.CutAddr(reply[5:])
	app, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(relay.AddrPort()))
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	_ = app.SetReadDeadline(time.Now().Add(rig.Patience))
	allowed, from := startUDPEcho(t, "127.0.0.1")
	private, privateFrom := startUDPEcho(t, "127.0.0.2")
	buf := make([]byte, 65536)
	for _, dest := range []string{allowed, private} {
		for _, n := range []int{1, 1400} {
			b, _ := io.ReadAll(rig.Noise(int64(n)))
			a, _ := wire.AddrOf(dest)
			if _, err := app.Write(append(a.Append([]byte{0, 0, 0}), b...)); err != nil {
				t.Fatal(err)
			}
			got, err := app.Read(buf)
			want := append(a.Append([]byte{0, 0, 0}), b...)
			if err != nil || !bytes.Equal(buf[:got], want) {
				t.Errorf("%d bytes to %s: %d came back, %v", n, dest, got, err)
			}
		}
	}
	if a, b := <-from, <-privateFrom; a.Port() == b.Port() {
		t.Errorf("a private destination was reached through the server, from %v", b)
	}
	if st := w.p.Status(true); st.FlowsTotal != 1 || len(st.FlowList) != 1 || st.FlowList[0].Subflow == 0 {
		t.Errorf("status: %d flows, %+v", st.FlowsTotal, st.FlowList)
	}
}
