// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/waittest"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// other is a Listener whose connections show other addresses.
type other struct {
	*tcp.Listener
	broken chan error
}

func (o other) Accept() (dial.Conn, error) {
	c, err := o.Listener.Accept()
	if err != nil {
		select {
		case err = <-o.broken:
		default:
		}
		return nil, err
	}
	return c, nil
}

// TestOtherListener: there is no pairing over UDP. Its callers count as handshakes, and its final
// error is logged.
func TestOtherListener(t *testing.T) {
	ln, err := tcp.Listen(t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := other{ln, make(chan error, 1)}
	cfg := Default
	cfg.UDP, cfg.ListenUDP = true, func(string) (Listener, error) { return o, nil }
	s, _, log := newServer(t, cfg)
	s.handshakes.firstByteTimeout = time.Minute
	paired := make(chan bool, 2)
	s.SetPairing(func(_ context.Context, c net.Conn) { paired <- true; c.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	for _, addr := range []net.Addr{ln.Addr(), s.Addr()} {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte{byte(wire.TypePair), 0, 0, 0, 0})
		_, _ = io.ReadAll(c) // until it hangs up
	}
	if len(paired) != 1 {
		t.Errorf("%d were paired", len(paired))
	}
	o.broken <- errors.New("the socket is on fire")
	ln.Close()
	waittest.Until(t, "Accept takes the error", func() bool { return len(o.broken) == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "on fire") {
		t.Errorf("log: %s", log)
	}
}

// TestCongestionOverUDP: a name that only UDP has is accepted if UDP is served, and rejected
// otherwise.
func TestCongestionOverUDP(t *testing.T) {
	for _, name := range []string{tcp.PBE, tcp.Copa} {
		ln, err := tcp.Listen(t.Context(), "127.0.0.1:0", tcp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Default
		cfg.Listen, cfg.Congestion = "127.0.0.1:0", name
		if _, err := New(cfg, nil, nil, nil, nil); !fault.Is(err, fault.Config) ||
			!strings.Contains(fault.HintOf(err), "udp") {
			t.Errorf("%s: %v", name, err)
		}
		cfg.UDP, cfg.ListenUDP = true, func(string) (Listener, error) { return other{ln, nil}, nil }
		s, _, _ := newServer(t, cfg)
		s.ln.Close()
		ln.Close()
	}
}
