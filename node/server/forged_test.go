// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// recordedConn stores what a helper wrote last.
type recordedConn struct {
	pipe.Conn
	last []byte
}

func (c *recordedConn) Write(b []byte) (int, error) {
	c.last = bytes.Clone(b)
	return c.Conn.Write(b)
}

// notes is the output of a trace and may be read at the same time.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(b)
}

func (n *notes) Close() error { return nil }

// TestForgedReports: the server accepts a helper's report only with the tag of that subflow's key,
// once, and after MP_JOIN. Others are counted and logged once, and the subflow goes on.
func TestForgedReports(t *testing.T) {
	s, primary, log := newServer(t, Default)
	var traced notes
	s.rec = trace.New(&traced, "server", slog.New(slog.DiscardHandler))
	s.sessions.rec = s.rec
	s.handshakes.firstByteTimeout = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()

	report := func(n uint64) wire.HopState { return wire.HopState{Received: n, Forwarded: n, RTT: time.Millisecond} }
	helped := func(id wire.SubflowID, joins, helper wire.HopKey) (*pipe.HSPath, *recordedConn, *subflow.Subflow) {
		t.Helper()
		c, err := tcp.Dial(ctx, s.Addr().String(), tcp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := &recordedConn{Conn: c}
		l, err := pipe.DialHS(ctx, h, "phone", helper)
		if err == nil {
			err = l.SendState(report(1000 * uint64(id))) // before the key is known
		}
		if err != nil {
			t.Fatal(err)
		}
		return l, h, joinHelped(
			t,
			s,
			primary,
			l,
			wire.Join{
				Version: wire.Version,
				Bond:    wire.BondID{1},
				Subflow: id,
				Helped:  true,
				Key:     joins,
				Device:  "phone",
			},
		)
	}
	send := func(l *pipe.HSPath, n uint64) {
		t.Helper()
		if err := l.SendState(report(n)); err != nil {
			t.Fatal(err)
		}
	}
	one, two := wire.HopKey{1}, wire.HopKey{2}
	l, h, sf := helped(1, one, one)
	send(l, 1001)
	if _, err := h.Conn.Write(h.last); err != nil { // again
		t.Fatal(err)
	}
	send(l, 1002)
	l2, h2, sf2 := helped(2, two, one) // with the key of another subflow
	send(l2, 2001)
	forged := bytes.Clone(h.last) // of another subflow
	if _, err := h2.Conn.Write(forged); err != nil {
		t.Fatal(err)
	}
	forged[len(forged)-1] ^= 1
	if _, err := h.Conn.Write(forged); err != nil {
		t.Fatal(err)
	}
	send(l, 1003)
	for _, sf := range []*subflow.Subflow{sf, sf2} { // both go on
		if err := sf.Write(wire.Append(nil, wire.Ping{})); err != nil {
			t.Fatal(err)
		}
		for typ := wire.Type(0); typ != wire.TypeAck; {
			var err error
			if typ, _, err = sf.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[uint32]uint64{}
	for _, p := range s.Status(false)[0].Subflows {
		got[p.ID] = p.Hop.RejectedReports
	}
	if want := map[uint32]uint64{1: 2, 2: 2}; !maps.Equal(got, want) {
		t.Errorf("rejected: %v, want %v", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.rec.Close()
	var believed []uint64
	for e, err := range trace.Read(&traced.b) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == trace.PipeState {
			believed = append(believed, e.Offset)
		}
	}
	if len(believed) != 3 || believed[0] != 1001 || believed[1] != 1002 || believed[2] != 1003 {
		t.Errorf("believed: %v", believed)
	}
	if n := strings.Count(log.String(), "report of a helper ignored"); n != 1 ||
		!strings.Contains(log.String(), "by=phone") {
		t.Errorf("logged %d times: %s", n, log)
	}
}

// joinHelped joins a subflow over the HS-path of a helper.
func joinHelped(t *testing.T, s *Server, primary *identity.Key, l *pipe.HSPath, j wire.Join) *subflow.Subflow {
	t.Helper()
	sf, _, err := subflow.Join(t.Context(), l, primary.ClientConfig(s.handshakes.key.Public(), wire.ALPN), j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sf.Close() })
	return sf
}
