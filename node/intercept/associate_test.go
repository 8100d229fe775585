// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/link/wire"
)

// fakePackets is a PacketDialer with destinations on this machine.
type fakePackets struct {
	mu     sync.Mutex
	at     map[string]string
	refuse map[string]wire.Code
	conns  []*fakePacketConn
}

func (d *fakePackets) DialPackets(context.Context) (PacketConn, error) {
	s, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	c := &fakePacketConn{UDPConn: s, d: d, refused: make(chan error, 16)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, c)
	return c, nil
}

func (d *fakePackets) dialCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

type fakePacketConn struct {
	*net.UDPConn
	d       *fakePackets
	refused chan error
	end     error // set by failReceive
}

func (c *fakePacketConn) Send(b []byte, dest string) error {
	c.d.mu.Lock()
	code, refused := c.d.refuse[dest]
	to, known := c.d.at[dest]
	end := c.end
	c.d.mu.Unlock()
	switch {
	case end != nil:
		return end
	case refused:
		c.refused <- &PacketRefusal{Dest: dest, Code: code, Text: "no"}
		_ = c.SetReadDeadline(time.Unix(1, 0))
	case known:
		_, _ = c.WriteToUDPAddrPort(b, netip.MustParseAddrPort(to))
	}
	return nil
}

// failReceive ends the flow like its far end.
func (c *fakePacketConn) failReceive() {
	c.d.mu.Lock()
	c.end = wire.Reset{Code: wire.CodeClosed, Text: "it was unused"}
	c.d.mu.Unlock()
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

func (c *fakePacketConn) Receive(b []byte) (int, netip.AddrPort, error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.d.mu.Lock()
		end := c.end
		c.d.mu.Unlock()
		if end != nil {
			return 0, from, end
		}
		_ = c.SetReadDeadline(time.Time{})
		return 0, from, <-c.refused
	}
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), err
}

// startUppercaseServer answers datagrams in capitals.
func startUppercaseServer(t *testing.T) string {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			n, a, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(bytes.ToUpper(b[:n]), a)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().String()
}

// openTestAssociation makes an association with the proxy. It returns its TCP connection and its
// address for datagrams.
func openTestAssociation(t *testing.T, proxy string) (net.Conn, *net.UDPAddr) {
	t.Helper()
	c := dialTCP(t, proxy)
	io.WriteString(c, greet+"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil || b[3] != socksSucceeded {
		t.Fatalf("reply %x, %v", b, err)
	}
	a, _, err := wire.CutAddr(b[5:])
	if err != nil || a.Port == 0 {
		t.Fatalf("reply %x: %v", b, err)
	}
	return c, net.UDPAddrFromAddrPort(a.AddrPort())
}

// newPacketApp returns a socket of an app for an association.
func newPacketApp(t *testing.T, relay *net.UDPAddr) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, relay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	return c
}

func sendPacket(t *testing.T, c *net.UDPConn, dest, text string) {
	t.Helper()
	a, err := wire.AddrOf(dest)
	if err == nil {
		_, err = c.Write(append(a.Append([]byte{0, 0, 0}), text...))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func expectPacket(t *testing.T, c *net.UDPConn, from, want string) {
	t.Helper()
	b := make([]byte, 65536)
	n, err := c.Read(b)
	if err != nil {
		t.Fatalf("no answer %q: %v", want, err)
	}
	payload, dest, err := parseSOCKSDatagram(b[:n])
	if err != nil || dest != from || string(payload) != want {
		t.Errorf("%q from %s, %v; want %q from %s", payload, dest, err, want, from)
	}
}

func TestAssociate(t *testing.T) {
	one, other := startUppercaseServer(t), startUppercaseServer(t)
	d := &fakePackets{at: map[string]string{"name.test:7": one, "198.51.100.7:9": other, "[2001:db8::7]:9": other}}
	_, proxy := startProxy(t, Config{Dialer: &fakeBond{}, Packets: d})
	_, relay := openTestAssociation(t, proxy)
	app := newPacketApp(t, relay)
	sendPacket(t, app, "name.test:7", "by name")
	expectPacket(t, app, one, "BY NAME")
	sendPacket(t, app, "198.51.100.7:9", "")
	expectPacket(t, app, other, "")
	sendPacket(t, app, "[2001:db8::7]:9", "six")
	expectPacket(t, app, other, "SIX")
	// Ignored: fragments, truncated headers, datagrams of others.
	for _, b := range []string{"", "\x00\x00", "\x00\x00\x01\x01\x7f\x00\x00\x01\x00\x07frag",
		"\x00\x01\x00\x01\x7f\x00\x00\x01\x00\x07", "\x00\x00\x00\x01\x7f"} {
		if _, err := app.Write([]byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	sendPacket(t, newPacketApp(t, relay), "name.test:7", "from another socket")
	sendPacket(t, app, "name.test:7", "last")
	expectPacket(t, app, one, "LAST")
	if n := d.dialCount(); n != 1 {
		t.Errorf("%d flows for one association", n)
	}
	// After its end a flow is opened again.
	d.conns[0].failReceive()
	sendPacket(t, app, "name.test:7", "again")
	expectPacket(t, app, one, "AGAIN")
}

// TestAssociationEndsWithItsConnection checks that an association ends with its connection, and
// with the Edge.
func TestAssociationEndsWithItsConnection(t *testing.T) {
	one := startUppercaseServer(t)
	d := &fakePackets{at: map[string]string{"name.test:7": one}}
	e, proxy := startProxy(t, Config{Dialer: &fakeBond{}, Packets: d})
	c, relay := openTestAssociation(t, proxy)
	app := newPacketApp(t, relay)
	sendPacket(t, app, "name.test:7", "x")
	expectPacket(t, app, one, "X")
	c.Close()
	waittest.Until(t, "the end of the association", func() bool {
		_, _ = app.Write([]byte("x")) // the port is closed soon
		return e.Conns() == 0
	})
	if err := d.conns[0].SetReadDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the flow goes on after its connection: %v", err)
	}
	openTestAssociation(t, proxy)
	e.Close()
	if e.Conns() != 0 {
		t.Errorf("%d connections remain", e.Conns())
	}
}

// TestRefusedDatagramsGoDirect checks that they do, including the refused one, also by name.
func TestRefusedDatagramsGoDirect(t *testing.T) {
	near := startUppercaseServer(t)
	_, port, _ := net.SplitHostPort(near)
	d := &fakePackets{refuse: map[string]wire.Code{near: wire.CodeForbidden,
		"localhost:" + port: wire.CodeNameNotFound}}
	_, proxy := startProxy(t, Config{Dialer: &fakeBond{}, Packets: d, Direct: new(net.Dialer).DialContext})
	_, relay := openTestAssociation(t, proxy)
	app := newPacketApp(t, relay)
	sendPacket(t, app, near, "first")
	expectPacket(t, app, near, "FIRST")
	sendPacket(t, app, near, "second")
	expectPacket(t, app, near, "SECOND")
	sendPacket(t, app, "localhost:"+port, "by name")
	expectPacket(t, app, near, "BY NAME")
}

func TestAssociateWithoutDatagrams(t *testing.T) {
	_, proxy := startProxy(t, Config{Dialer: &fakeBond{}})
	c := dialTCP(t, proxy)
	io.WriteString(c, greet+"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil || b[3] != socksCommandUnsupported {
		t.Errorf("reply %x, %v", b, err)
	}
}

func FuzzSOCKSDatagram(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x7f\x00\x00\x01\x00\x07data"))
	f.Add([]byte("\x00\x00\x00\x03\x01x\x00\x07"))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, dest, err := parseSOCKSDatagram(b)
		if err != nil {
			return
		}
		if _, err := wire.AddrOf(dest); err != nil || len(payload) >= len(b) {
			t.Errorf("%x: %q to %s: %v", b, payload, dest, err)
		}
	})
}
