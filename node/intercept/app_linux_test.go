// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// recordingDialer is a Dialer that records the app.
type recordingDialer chan App

func (n recordingDialer) DialStream(ctx context.Context, _ string) (net.Conn, error) {
	a, _ := AppOf(ctx)
	n <- a
	return nil, io.EOF
}

// TestAppIsKnown checks that a dialer gets the app's address and the DSCP of its SYN.
func TestAppIsKnown(t *testing.T) {
	for _, network := range []struct {
		name, listen string
		level, opt   int
	}{{"tcp4", "127.0.0.1:0", unix.IPPROTO_IP, unix.IP_TOS}, {"tcp6", "[::1]:0", unix.IPPROTO_IPV6, unix.IPV6_TCLASS}} {
		ln, err := Listen(network.name, network.listen)
		if err != nil {
			t.Logf("%s left out: %v", network.name, err)
			continue
		}
		dialer := make(recordingDialer, 1)
		e := New(Config{Dialer: dialer})
		done := make(chan error, 1)
		go func() { done <- e.ServeProxy(ln) }()
		d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), network.level, network.opt, 46<<2) })
		}}
		// No SYN was kept for a connection that came before the edge was ready.
		for i := range 2 {
			c, err := d.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte{5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80}); err != nil {
				t.Fatal(err)
			}
			want := App{Addr: netip.MustParseAddrPort(c.LocalAddr().String()), DSCP: 46, Network: "tcp",
				Peer: netip.MustParseAddrPort(ln.Addr().String())}
			if got := <-dialer; got != want && i > 0 {
				t.Errorf("%s: %+v, want %+v", network.name, got, want)
			}
			c.Close()
		}
		e.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestHeaderDSCP(t *testing.T) {
	for _, c := range []struct {
		header []byte
		want   uint8
	}{{nil, 0}, {[]byte{0x45}, 0}, {[]byte{0x45, 46 << 2}, 46}, {[]byte{0x45, 46<<2 | 1}, 46},
		{[]byte{0x6b, 0x80}, 46}, {[]byte{0x6f, 0xff}, 63}, {[]byte{0x50, 0xff}, 0}} {
		if got := HeaderDSCP(c.header); got != c.want {
			t.Errorf("%x: %d, want %d", c.header, got, c.want)
		}
	}
}
