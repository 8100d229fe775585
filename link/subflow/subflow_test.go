// SPDX-License-Identifier: Apache-2.0

package subflow

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are generated once.
var keys = sync.OnceValue(func() (k struct{ primary, server *identity.Key }) {
	for _, p := range []**identity.Key{&k.primary, &k.server} {
		key, err := identity.Generate()
		if err != nil {
			panic(err)
		}
		*p = key
	}
	return k
})

func clientConfig() *tls.Config {
	return keys().primary.ClientConfig(keys().server.Public(), wire.ALPN)
}

func serverConfig() *tls.Config {
	return keys().server.ServerConfig(wire.ALPN,
		func(k identity.PublicKey) bool { return k == keys().primary.Public() })
}

func acceptAll(identity.PublicKey, wire.Join) (wire.OK, error) { return wire.OK{Instance: 7}, nil }

var join = wire.Join{Version: wire.Version, Bond: wire.BondID{1}, Subflow: 3, Device: "laptop"}

// joinedPair joins a subflow over memory.
func joinedPair(t *testing.T) (primary, server *Subflow) {
	t.Helper()
	a, b := pipe.MemoryPipe()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, _, err = Accept(t.Context(), b, serverConfig(), acceptAll)
		accepted <- err
	}()
	primary, ok, err := Join(t.Context(), a, clientConfig(), join)
	if err := errors.Join(err, <-accepted); err != nil || ok.Instance != 7 {
		t.Fatal(ok, err)
	}
	return primary, server
}

func TestJoinAndFrames(t *testing.T) {
	p, s := joinedPair(t)
	defer p.Close()
	defer s.Close()
	if s.ID != 3 || s.Device != "laptop" || s.Helped || s.Peer != keys().primary.Public() ||
		p.Peer != keys().server.Public() {
		t.Errorf("%+v, %+v", p, s)
	}
	// Longer than a TLS record: several records leave as one segment.
	segment := wire.Append(nil, hop(bytes.Repeat([]byte{5}, 40_000)))
	if err := p.WaitWritable(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Write(segment); err != nil {
			t.Fatal(err)
		}
		typ, payload, err := s.Next()
		if err != nil || typ != wire.TypeHopData || len(payload) != 40_000 {
			t.Errorf("%v of %d bytes, %v", typ, len(payload), err)
		}
	}
}

type hop []byte

func (hop) Type() wire.Type                 { return wire.TypeHopData }
func (h hop) AppendPayload(b []byte) []byte { return append(b, h...) }

// TestHalfOpen checks, in virtual time, that no end waits for ever for a silent peer, before or
// after TLS.
func TestHalfOpen(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, a, b pipe.Conn) error{
		"server, nothing comes": func(ctx context.Context, _, b pipe.Conn) error {
			_, _, err := Accept(ctx, b, serverConfig(), acceptAll)
			return err
		},
		"server, nothing comes after TLS": func(ctx context.Context, a, b pipe.Conn) error {
			go func() { _ = tls.Client(a, clientConfig()).Handshake() }()
			_, _, err := Accept(ctx, b, serverConfig(), acceptAll)
			return err
		},
		"primary, nothing comes": func(ctx context.Context, a, _ pipe.Conn) error {
			_, _, err := Join(ctx, a, clientConfig(), join)
			return err
		},
		"primary, nothing comes after TLS": func(ctx context.Context, a, b pipe.Conn) error {
			go func() { _ = tls.Server(b, serverConfig()).Handshake() }()
			_, _, err := Join(ctx, a, clientConfig(), join)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := pipe.MemoryPipe()
				began := time.Now()
				err := f(t.Context(), a, b)
				if took := time.Since(began); took != HandshakeTimeout {
					t.Errorf("took %v", took)
				}
				if !fault.Is(err, fault.Timeout) || fault.HintOf(err) == "" {
					t.Errorf("%v (%v)", err, fault.KindOf(err))
				}
				a.Close()
				b.Close()
			})
		})
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	a, b := pipe.MemoryPipe()
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Join(ctx, a, clientConfig(), join); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		refuse wire.Refuse
		kind   fault.Kind
		hint   bool
	}{
		{wire.Refuse{Code: wire.CodeVersion, Version: 2, Text: "other version"}, fault.Protocol, true},
		{wire.Refuse{Code: wire.CodeUnknown, Text: "no longer"}, fault.UnknownDevice, true},
		{wire.Refuse{Code: wire.CodeLimit, Text: "too many"}, fault.Limit, true},
		{wire.Refuse{Code: wire.CodeMalformed, Text: "what?"}, fault.Protocol, true},
		{wire.Refuse{Code: wire.CodeClosed, Text: "going"}, fault.Other, false},
	} {
		a, b := pipe.MemoryPipe()
		judged := make(chan error, 1)
		go func() {
			_, _, err := Accept(t.Context(), b, serverConfig(), func(identity.PublicKey, wire.Join) (wire.OK,
				error) {
				return wire.OK{}, c.refuse
			})
			judged <- err
		}()
		_, _, err := Join(t.Context(), a, clientConfig(), join)
		for _, err := range []error{err, <-judged} {
			var r wire.Refuse
			if !errors.As(err, &r) || r.Code != c.refuse.Code || r.Text != c.refuse.Text ||
				fault.KindOf(err) != c.kind || (fault.HintOf(err) != "") != c.hint {
				t.Errorf("%v: %v (%v, %s)", c.refuse, err, fault.KindOf(err), fault.HintOf(err))
			}
		}
	}
}

func TestHangUpInTheHandshake(t *testing.T) {
	a, b := pipe.MemoryPipe()
	go func() {
		c := tls.Server(b, serverConfig())
		_ = c.Handshake()
		_, _ = c.Read(make([]byte, 1000))
		c.Close()
	}()
	if _, _, err := Join(t.Context(), a, clientConfig(), join); !fault.Is(err, fault.Protocol) ||
		fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

func TestMalformedFrameHasAHint(t *testing.T) {
	p, s := joinedPair(t)
	defer p.Close()
	defer s.Close()
	go func() { _ = p.Write([]byte{byte(wire.TypeData), 0xff, 0xff, 0xff}) }()
	if _, _, err := s.Next(); !fault.Is(err, fault.Protocol) || !errors.Is(err, wire.ErrTooLarge) ||
		fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
