// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/link/wire"
	"mpbond/node/intercept"
)

// DialPackets answers each datagram with its text, from the address to which it was sent. Forbidden
// destinations are refused.
func (s *farSide) DialPackets(context.Context) (intercept.PacketConn, error) {
	return &farPackets{w: s, answers: make(chan any, 64), closed: make(chan bool)}, nil
}

type farPackets struct {
	w       *farSide
	answers chan any // error, or answer
	closed  chan bool
	once    sync.Once
}

type answer struct {
	from netip.AddrPort
	text string
}

func (p *farPackets) Send(b []byte, dest string) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.dialed = append(p.w.dialed, "udp "+dest)
	if strings.HasPrefix(dest, "10.") {
		p.answers <- &intercept.PacketRefusal{Dest: dest, Code: wire.CodeForbidden, Text: "private"}
		return nil
	}
	for part, code := range map[string]wire.Code{":9": wire.CodeConnRefused, ":10": wire.CodeUnreachable,
		":11": wire.CodeTooBig} {
		if strings.HasSuffix(dest, part) {
			p.answers <- &intercept.PacketRefusal{Dest: dest, Code: code, MTU: 1400, Text: "so says the network"}
			return nil
		}
	}
	p.answers <- answer{netip.MustParseAddrPort(dest), "world:" + string(b)}
	return nil
}

func (p *farPackets) Receive(b []byte) (int, netip.AddrPort, error) {
	select {
	case <-p.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	case v := <-p.answers:
		if a, ok := v.(answer); ok {
			return copy(b, a.text), a.from, nil
		}
		return 0, netip.AddrPort{}, v.(error)
	}
}

func (p *farPackets) SetReadDeadline(time.Time) error { return nil }
func (p *farPackets) Close() error                    { p.once.Do(func() { close(p.closed) }); return nil }

// refusedByUDP prints the error that a connected socket of an app gets for refused datagrams.
func refusedByUDP(args []string) int {
	for _, dest := range args {
		c, err := net.Dial("udp", dest)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if raw, err := c.(*net.UDPConn).SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // so that it hears of all, as an app that looks for the MTU does
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_RECVERR, 1)
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
			})
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err = c.Write([]byte("hi")); err == nil {
			_, err = c.Read(make([]byte, 100))
		}
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			fmt.Println(err)
			return 1
		}
		fmt.Printf("%v;", errno)
		c.Close()
	}
	return 0
}

// TestRunReportsRefusals checks that ICMP errors of the far end reach the app. Destinations
// unreachable there are first tried directly for 3 s.
func TestRunReportsRefusals(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	_, port := startEdge(t)
	for _, host := range []string{"198.51.100.7", "[2001:db8::7]"} {
		script := fmt.Sprintf("MPBOND_TEST_ROLE=refused exec %[1]s %[2]s:9 %[2]s:10 %[2]s:11", os.Args[0], host)
		out, code := runOutput(t, portFlag(port), "--", "sh", "-c", script)
		if !strings.Contains(out, "connection refused;no route to host;message too long;") || code != 0 {
			t.Errorf("%s: %q, exit code %d", host, out, code)
		}
	}
	if l := listLeftovers(t); l != "" {
		t.Errorf("left behind: %s", l)
	}
}

// askByUDP sends text to each address from one socket and prints the answers, which must come from
// these addresses. After "only:" it waits for none.
func askByUDP(args []string) int {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 1
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for _, dest := range args {
		dest, only := strings.CutPrefix(dest, "only:")
		to := netip.MustParseAddrPort(dest)
		b := make([]byte, 1000)
		if _, err := c.WriteToUDPAddrPort([]byte("hi"), to); err != nil {
			fmt.Println(err)
			return 1
		}
		if only {
			continue
		}
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil || from.Addr().Unmap() != to.Addr() || from.Port() != to.Port() {
			fmt.Println(from, err)
			return 1
		}
		fmt.Printf("%s;", b[:n])
	}
	return 0
}

// TestRunCarriesDatagrams checks datagrams to all kinds of destinations, and the source addresses
// of answers.
func TestRunCarriesDatagrams(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	w, port := startEdge(t)
	ask := "MPBOND_TEST_ROLE=ask exec " + os.Args[0] + " "
	local, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	go func() {
		b := make([]byte, 100)
		for {
			_, a, err := local.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = local.WriteTo([]byte("local"), a)
		}
	}()
	const game4, other4, game6 = "198.51.100.7:7000", "203.0.113.9:53001", "[2001:db8::7]:7000"
	for _, tc := range []struct{ name, script, want string }{
		{"IPv4", ask + game4, "world:hi;"},
		{"IPv6", ask + game6, "world:hi;"},
		{"one socket, several destinations", ask + game4 + " " + other4 + " " + game4 + " " + game6,
			"world:hi;world:hi;world:hi;world:hi;"},
		{"loopback stays direct", ask + local.LocalAddr().String(), "local;"},
	} {
		out, code := runOutput(t, portFlag(port), "--", "sh", "-c", tc.script)
		if !strings.Contains(out, tc.want) || code != 0 {
			t.Errorf("%s: %q, exit code %d; want %q", tc.name, out, code, tc.want)
		}
	}
	if w.hasDialed("udp " + local.LocalAddr().String()) {
		t.Error("this machine was reached through the bond")
	}
	// Other processes and exempted addresses are not redirected.
	w.mu.Lock()
	w.dialed = nil
	w.mu.Unlock()
	if c, err := net.Dial("udp", game4); err == nil {
		_, _ = c.Write([]byte("from outside"))
		c.Close()
	}
	out, _ := runOutput(t, portFlag(port), "--direct=198.51.100.0/24", "--", "sh", "-c", ask+"only:"+game4+" "+other4)
	if !strings.Contains(out, "world:hi;") || w.hasDialed("udp "+game4) {
		t.Errorf("%q; through the bond went %v", out, w.dialed)
	}
	if l := listLeftovers(t); l != "" {
		t.Errorf("left behind: %s", l)
	}
}
