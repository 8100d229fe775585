// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/link/wire"

	"go.uber.org/goleak"
)

// trustFile returns the trust file of a server that belongs to no fleet.
func (s *Server) trustFile() *identity.Trust { return s.trust.(*identity.Trust) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parsePrefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// startServer runs a server that trusts one primary and waits only a moment for the first byte.
// stop ends it and returns its log.
func startServer(t *testing.T, firstByte time.Duration) (s *Server, primary *identity.Key, stop func() string) {
	t.Helper()
	return startServerWith(t, firstByte, Default)
}

// startServerWith is startServer with another configuration.
func startServerWith(
	t *testing.T,
	firstByte time.Duration,
	cfg Config,
) (s *Server, primary *identity.Key, stop func() string) {
	t.Helper()
	s, primary, log := newServer(t, cfg)
	s.handshakes.firstByteTimeout = firstByte
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() string {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return log.String()
	})
	t.Cleanup(func() { stop() })
	return s, primary, stop
}

// newServer returns a server that does not run, and its log.
func newServer(t *testing.T, cfg Config) (s *Server, primary *identity.Key, log *bytes.Buffer) {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	if primary, err = identity.Generate(); err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Add(identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary},
		Key: primary.Public()}); err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	cfg.Listen = "127.0.0.1:0"
	s, err = New(cfg, key, trust, slog.New(slog.NewTextHandler(log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, primary, log
}

func dialServer(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := tryServer(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tryServer dials a server that may reject the caller: the reset can then arrive before connect(2)
// returns.
func tryServer(t *testing.T, s *Server) (net.Conn, error) {
	c, err := net.Dial("tcp", s.Addr().String())
	if err == nil {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return c, err
}

func TestSilentCallerIsDropped(t *testing.T) {
	s, _, stop := startServer(t, 50*time.Millisecond)
	if b, err := io.ReadAll(dialServer(t, s)); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	if log := stop(); !strings.Contains(log, "nothing received within 50ms") || !strings.Contains(log, "hint=\"") {
		t.Errorf("log: %s", log)
	}
}

// TestEndsWithHalfOpenCallers: callers that sent nothing, began TLS, completed TLS or began an
// HS-path block nothing and are disconnected.
func TestEndsWithHalfOpenCallers(t *testing.T) {
	const patience = 2 * time.Minute
	s, primary, stop := startServer(t, patience)
	silent := dialServer(t, s)
	began := dialServer(t, s)
	if _, err := began.Write([]byte{22, 3, 1, 2}); err != nil { // the beginning of a TLS record
		t.Fatal(err)
	}
	helped := dialServer(t, s)
	if _, err := helped.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: "phone"})); err != nil {
		t.Fatal(err)
	}
	joined := tls.Client(dialServer(t, s), primary.ClientConfig(s.handshakes.key.Public(), wire.ALPN))
	if err := joined.Handshake(); err != nil {
		t.Fatal(err)
	}
	began2 := time.Now()
	stop()
	if d := time.Since(began2); d > patience/2 {
		t.Errorf("the end took %v", d)
	}
	for i, c := range []net.Conn{silent, began, helped, joined} {
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("caller %d is not cut off: %v", i, err)
		}
	}
}

// TestRename: a bond is shown with the current name of its device.
func TestRename(t *testing.T) {
	s, primary, _ := startServer(t, time.Minute)
	b := &session{key: bondKey{device: primary.Public()}, name: "laptop"}
	if err := s.trustFile().Rename("laptop", "notebook"); err != nil {
		t.Fatal(err)
	}
	if got := currentDeviceName(s.trust, b); got != "notebook" {
		t.Errorf("it is called %s", got)
	}
	if err := s.trustFile().Remove("notebook"); err != nil {
		t.Fatal(err)
	}
	if got := currentDeviceName(s.trust, b); got != "laptop" {
		t.Errorf("trusted no longer, it is called %s", got)
	}
}

// TestHandshakesAreBounded: the number of handshakes is bounded; a caller above the bound evicts a
// silent one.
func TestHandshakesAreBounded(t *testing.T) {
	s, primary, stop := startServer(t, time.Minute) // none may be dropped before all are there
	var crowd []net.Conn
	for i := range maxHandshakes {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i/maxPerSource))}}
		c, err := from.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	began := time.Now()
	for range 20 { // logged once a minute
		c := dialServer(t, s)
		if err := tls.Client(c, primary.ClientConfig(s.handshakes.key.Public(),
			wire.ALPN)).HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// As many were evicted: the oldest two of each source.
	for i, c := range crowd {
		if i%maxPerSource < 2 {
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("silent caller %d: %v", i, err)
			}
		}
	}
	log := stop()
	if lines, most := strings.Count(log, "too many handshakes"), 2+int(time.Since(began)/time.Minute); lines == 0 ||
		lines > most {
		t.Errorf("%d lines, at most %d are due; log: %.1000s", lines, most, log)
	}
}

// TestPaused: a paused device gets no subflow, and its bonds end, until it is resumed.
func TestPaused(t *testing.T) {
	s, primary, _ := startServer(t, time.Minute)
	key, join := bondKey{device: primary.Public(), id: wire.BondID{1}}, wire.Join{Bond: wire.BondID{1}}
	pause := func(paused bool) {
		t.Helper()
		if err := s.trustFile().SetPaused("laptop", paused); err != nil {
			t.Fatal(err)
		}
		s.TrustChanged()
	}
	before, err := s.bondForSubflow(t.Context(), key, join)
	if err != nil || before == nil {
		t.Fatal(before, err)
	}
	pause(true)
	var r wire.Refuse
	if _, err := s.bondForSubflow(t.Context(), key, join); !errors.As(err, &r) || r.Code != wire.CodeLimit ||
		!strings.Contains(r.Text, "paused") {
		t.Errorf("joined: %v", err)
	}
	if list := s.Status(false); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	pause(false)
	if b, err := s.bondForSubflow(t.Context(), key, join); err != nil || b == nil || b == before {
		t.Errorf("resumed: %v, %v", b, err)
	}
}
