// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Keys of a primary, a helper and an unknown device.
var primaryKey, helperKey, unknownKey = sync.OnceValue(generateKey), sync.OnceValue(generateKey),
	sync.OnceValue(generateKey)

func generateKey() *identity.Key {
	k, err := identity.Generate()
	if err != nil {
		panic(err)
	}
	return k
}

func primaryConfig() *tls.Config {
	return primaryKey().ServerConfig(wire.PipeALPN,
		func(k identity.PublicKey) bool { return k == helperKey().Public() })
}

func helperConfig() *tls.Config {
	return helperKey().ClientConfig(primaryKey().Public(), wire.PipeALPN)
}

// waitingPair makes a waiting pipe over a connection.
func waitingPair(t testing.TB, a, b Conn) (*Offer, *Waiting) {
	t.Helper()
	type result struct {
		o   *Offer
		err error
	}
	c := make(chan result, 1)
	go func() {
		o, err := NewOffer(t.Context(), a, helperConfig(), "phone")
		c <- result{o, err}
	}()
	w, err := Accept(t.Context(), b, primaryConfig())
	if err != nil {
		t.Fatal(err)
	}
	r := <-c
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.o.Close(); w.Close() })
	return r.o, w
}

// linkPair returns the two ends of a pipe in use.
func linkPair(t testing.TB, a, b Conn) (helper, primary *Link) {
	t.Helper()
	o, w := waitingPair(t, a, b)
	c := make(chan *Link, 1)
	go func() {
		defer close(c)
		q, err := o.Wait(t.Context())
		if err != nil || q.Server != "192.0.2.1:7600" || q.Resume != nil {
			t.Errorf("asked for %+v, %v", q, err)
			o.Close()
			return
		}
		l, err := o.Accept(q, q.ResumeTimeout, wire.RadioCellular)
		if err != nil {
			t.Error(err)
		}
		c <- l
	}()
	p, err := w.Join(t.Context(), "192.0.2.1:7600", DefaultResumeTimeout)
	if err != nil {
		t.Fatal(err)
	}
	h := <-c
	t.Cleanup(func() { p.Close(); h.Close() })
	return h, p
}

// hsPathPair returns the two ends of an HS-path.
func hsPathPair(t testing.TB, a, b Conn) (helper, server *HSPath) {
	t.Helper()
	h, err := DialHS(t.Context(), a, "phone", hopKey)
	if err != nil {
		t.Fatal(err)
	}
	s, name, err := AcceptHS(t.Context(), b)
	if err != nil || name != "phone" {
		t.Fatal(name, err)
	}
	if err := s.Authenticate(hopKey, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); s.Close() })
	return h, s
}

// hopKey is the key of HS-paths.
var hopKey = wire.HopKey{1, 31: 2}

// TestHops runs testHop for both kinds of hop over every carrier.
func TestHops(t *testing.T) {
	for hop, make := range map[string]func(testing.TB, Conn, Conn) (a, b reportingHop){
		"pipe":    func(t testing.TB, a, b Conn) (reportingHop, reportingHop) { return linkPair(t, a, b) },
		"HS-path": func(t testing.TB, a, b Conn) (reportingHop, reportingHop) { return hsPathPair(t, a, b) },
	} {
		runOnEach(t, func(t *testing.T, c Carrier, addr string) {
			t.Run(hop, func(t *testing.T) {
				a, b := connectPair(t, c, addr)
				near, far := make(t, a, b)
				testHop(t, near, far)
			})
		})
	}
}

// reportingHop is a Hop that receives reports.
type reportingHop interface {
	Hop
	OnState(func(wire.HopState))
}

func testHop(t *testing.T, helper, other reportingHop) {
	const n = 3 << 20
	sent := make([]byte, n)
	_, _ = rand.Read(sent)
	state := wire.HopState{Received: 5, Forwarded: 3, Rate: unit.Mbps, RTT: time.Millisecond, AboutPipe: true}
	got := make(chan wire.HopState, 1)
	other.OnState(func(s wire.HopState) { got <- s })
	var all sync.WaitGroup
	for _, dir := range []struct{ from, to reportingHop }{{helper, other}, {other, helper}} {
		all.Go(func() {
			sizes := []int{1, 5, 16406, 65532, 65533, 65536, 200_000}
			for i, p := 0, sent; len(p) > 0; i++ {
				m := min(len(p), sizes[i%len(sizes)])
				if i%3 == 0 {
					dir.from.Cork()
				}
				if k, err := dir.from.Write(p[:m]); k != m || err != nil {
					t.Error(k, err)
				}
				if dir.from == helper && i == 4 {
					if err := helper.SendState(state); err != nil { // within a gathered frame, or not
						t.Error(err)
					}
				}
				if i%3 == 2 {
					if err := dir.from.Flush(); err != nil {
						t.Error(err)
					}
				}
				p = p[m:]
			}
			if err := dir.from.Flush(); err != nil {
				t.Error(err)
			}
			if err := dir.from.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			h := sha256.New()
			k, err := io.Copy(h, dir.to)
			if want := sha256.Sum256(sent); k != n || err != nil || !bytes.Equal(h.Sum(nil), want[:]) {
				t.Errorf("%d bytes, %v", k, err)
			}
		})
	}
	all.Wait()
	if s := <-got; s != state {
		t.Errorf("report %+v, want %+v", s, state)
	}
	if helper.Sent() != n || helper.Received() != n {
		t.Errorf("sent %d, received %d", helper.Sent(), helper.Received())
	}
	if _, err := helper.Probe(); err != nil {
		t.Error(err)
	}
	helper.Close()
	if err := helper.WaitWritable(); err == nil {
		t.Error("a closed link is writable")
	}
}

func TestStateWhileWritingIsNotLost(t *testing.T) {
	a, b := MemoryPipe()
	h, s := hsPathPair(t, a, b)
	got := make(chan wire.HopState, 1)
	s.OnState(func(st wire.HopState) { got <- st })
	h.Cork() // as during a write
	if err := h.SendState(wire.HopState{Received: 1}); err != nil {
		t.Fatal(err)
	}
	if err := h.SendState(wire.HopState{Received: 2}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = h.Write([]byte("x")); _ = h.Flush() }()
	if _, err := s.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go s.Read(make([]byte, 1))
	if st := <-got; st.Received != 2 {
		t.Errorf("report %+v, want the newer", st)
	}
	h.Close()
}

func TestRefusals(t *testing.T) {
	runOnEach(t, func(t *testing.T, c Carrier, addr string) {
		a, b := connectPair(t, c, addr)
		o, w := waitingPair(t, a, b)
		if w.Name() != "phone" || w.Peer() != helperKey().Public() {
			t.Errorf("name %q, key %v", w.Name(), w.Peer())
		}
		go func() {
			if _, err := o.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			_ = o.Refuse(wire.CodeUnreachable, "no route to the server")
		}()
		_, err := w.Join(t.Context(), "192.0.2.1:7600", DefaultResumeTimeout)
		var r wire.Refuse
		if !errors.As(err, &r) || r.Code != wire.CodeUnreachable || !fault.Is(err, fault.Unreachable) ||
			!strings.Contains(err.Error(), "no route") {
			t.Errorf("refused with %v", err)
		}
		if _, err := w.Join(t.Context(), "192.0.2.1:7600", DefaultResumeTimeout); err == nil {
			t.Error("a pipe joined twice")
		}

		// A subflow in use may be refused later, as the server does.
		a, b = connectPair(t, c, addr)
		h, s := hsPathPair(t, a, b)
		_, _ = s.Write([]byte("x"))
		_ = s.Refuse(wire.CodeLimit, "too many")
		if got, err := io.ReadAll(h); string(got) != "x" || !errors.As(err, &r) || r.Code != wire.CodeLimit {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestWaitingNoticesTheEnd(t *testing.T) {
	runOnEach(t, func(t *testing.T, c Carrier, addr string) {
		a, b := connectPair(t, c, addr)
		_, w := waitingPair(t, a, b)
		select {
		case <-w.Done():
			t.Fatal("done at once")
		default:
		}
		a.Close()
		<-w.Done()
		if w.Err() == nil {
			t.Error("no reason given")
		}
		if _, err := w.Join(t.Context(), "x:1", DefaultResumeTimeout); err == nil {
			t.Error("joined by a broken pipe")
		}

		a, b = connectPair(t, c, addr)
		o, w := waitingPair(t, a, b)
		w.Close()
		<-w.Done()
		if _, err := o.Wait(t.Context()); err == nil {
			t.Error("the helper did not notice that the primary closed")
		}

		a, b = connectPair(t, c, addr)
		o, w = waitingPair(t, a, b)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := o.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("wait: %v", err)
		}
		<-w.Done()
	})
}

// TestSilentEnds checks, in virtual time, that no call waits for ever for a silent peer.
func TestSilentEnds(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, a, b Conn) error{
		"pipe, helper silent": func(ctx context.Context, a, b Conn) error {
			_, err := Accept(ctx, b, primaryConfig())
			return err
		},
		"pipe, primary silent": func(ctx context.Context, a, b Conn) error {
			_, err := NewOffer(ctx, a, helperConfig(), "x")
			return err
		},
		"HS-path, helper silent": func(ctx context.Context, a, b Conn) error {
			_, _, err := AcceptHS(ctx, b)
			return err
		},
		"pipe, helper says no HELLO": func(ctx context.Context, a, b Conn) error {
			c := tls.Client(a, helperConfig())
			go func() { _ = c.Handshake() }()
			_, err := Accept(ctx, b, primaryConfig())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := MemoryPipe()
				began := time.Now()
				err := f(t.Context(), a, b)
				if took := time.Since(began); took != HandshakeTimeout {
					t.Errorf("took %v", took)
				}
				if !fault.Is(err, fault.Timeout) || fault.HintOf(err) == "" {
					t.Errorf("error %v", err)
				}
				a.Close()
				b.Close()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a, b := MemoryPipe()
		o, w := waitingPair(t, a, b)
		began := time.Now()
		if _, err := w.Join(t.Context(), "x:1", DefaultResumeTimeout); !fault.Is(err, fault.Timeout) ||
			time.Since(began) != JoinTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		o.Close()
	})
}

func TestBadCallers(t *testing.T) {
	version := func(v uint8) []byte { return wire.Append(nil, wire.Hello{Version: v, Name: "phone"}) }
	for name, c := range map[string]struct {
		first []byte // sent instead of HELLO, inside TLS on a pipe
		kind  fault.Kind
		says  string
	}{
		"version": {version(wire.Version + 1), fault.Protocol,
			fmt.Sprintf("the helper speaks protocol version %d", wire.Version+1)},
		"former": {version(wire.Version - 1), fault.Protocol,
			fmt.Sprintf("the helper speaks protocol version %d", wire.Version-1)},
		"garbage":  {[]byte("GET / HTTP/1.1\r\n\r\n"), fault.Protocol, ""},
		"frame":    {wire.Append(nil, wire.InitOK{}), fault.Protocol, "INIT_MP_OK"},
		"magic":    {append([]byte{byte(wire.TypeHello), 0, 0, 7}, "notbond"...), fault.Protocol, "not mpbond"},
		"oversize": {[]byte{byte(wire.TypeHello), 0xff, 0xff, 0xff}, fault.Protocol, "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || fault.HintOf(err) == "" {
					t.Errorf("%v (%v; %s)", err, fault.KindOf(err), fault.HintOf(err))
				}
			}
			a, b := MemoryPipe()
			tc := tls.Client(a, helperConfig())
			go func() { _, _ = tc.Write(c.first) }()
			_, err := Accept(t.Context(), b, primaryConfig())
			check(err)
			if name == "version" || name == "former" { // the helper gets the reason
				_, err := expectPipeFrame(wire.NewReader(tc), wire.TypeInitJoin)
				var r wire.Refuse
				if !errors.As(err, &r) || r.Code != wire.CodeVersion || r.Version != wire.Version {
					t.Errorf("the helper got %v", err)
				}
				check(err)
			}
			a.Close()

			a, b = MemoryPipe()
			go func() { _, _ = a.Write(c.first); _ = a.CloseWrite() }()
			_, _, err = AcceptHS(t.Context(), b)
			check(err)
			a.Close()
		})
	}
}

func TestUnknownCallers(t *testing.T) {
	a, b := MemoryPipe()
	errs := make(chan error)
	go func() {
		o, err := NewOffer(t.Context(), a, unknownKey().ClientConfig(primaryKey().Public(), wire.PipeALPN), "x")
		if err == nil {
			_, err = o.Wait(t.Context())
		}
		errs <- err
	}()
	_, err := Accept(t.Context(), b, primaryConfig())
	if !fault.Is(err, fault.UnknownDevice) || !strings.Contains(fault.HintOf(err), "mpbond trust") {
		t.Errorf("at the primary: %v", err)
	}
	if err := <-errs; !fault.Is(err, fault.UnknownDevice) || !strings.Contains(fault.HintOf(err), "mpbond trust") {
		t.Errorf("at the helper: %v", err)
	}

	a, b = MemoryPipe()
	go func() {
		_, err := NewOffer(t.Context(), a, helperKey().ClientConfig(unknownKey().Public(), wire.PipeALPN), "x")
		errs <- err
	}()
	if w, err := Accept(t.Context(), b, primaryConfig()); err == nil {
		<-w.Done()
	}
	if err := <-errs; !fault.Is(err, fault.WrongKey) {
		t.Errorf("wrong primary: %v", err)
	}

	a, b = MemoryPipe()
	go func() { _, _ = a.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n")); errs <- nil }()
	_, err = Accept(t.Context(), b, primaryConfig())
	if !fault.Is(err, fault.Protocol) || fault.HintOf(err) == "" {
		t.Errorf("no TLS: %v", err)
	}
	<-errs
}

func TestBrokenLink(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"oversize frame":     {[]byte{byte(wire.TypeHopData), 0xff, 0xff, 0xff}, wire.ErrTooLarge},
		"frame out of place": {wire.Append(nil, wire.InitOK{}), wire.ErrMalformed},
		"bad report":         {wire.AppendHeader(nil, wire.TypeHopAuth, 0), wire.ErrMalformed},
		"bare report":        {wire.Append(nil, wire.HopState{}), wire.ErrMalformed},
		"bare limit":         {wire.Append(nil, wire.HopLimit{}), wire.ErrMalformed},
		"cut short":          {append(wire.AppendHeader(nil, wire.TypeHopData, 10), 1), io.ErrUnexpectedEOF},
		"hint of the future": {wire.AppendHeader(nil, 0x80, 0), io.EOF},
	} {
		a, b := MemoryPipe()
		_, s := hsPathPair(t, a, b)
		_, _ = a.Write(c.bytes)
		_ = a.CloseWrite()
		for range 2 { // the error remains
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	}
}

// FuzzHandshake checks that both handshakes end for any input, without panic, with an error or a
// link that can be read to its end.
func FuzzHandshake(f *testing.F) {
	f.Add(wire.Append(nil, wire.Hello{Version: wire.Version, Name: "phone"}), true)
	f.Add(wire.Append(wire.Append(nil, wire.Hello{Version: wire.Version}), wire.InitOK{}), false)
	f.Add([]byte{0x16, 3, 1, 0, 5}, true)
	f.Add(append(wire.Append(nil, wire.Hello{Version: wire.Version}), 0x43, 0, 0, 1, 9, 0x44, 0, 0, 5, 2, 1, 1,
		1, 0), false)
	f.Add(append(append(wire.Append(nil, wire.Hello{Version: wire.Version}), 0x43, 0, 0, 1, 9),
		hopAuthFrame(hopKey, 1, wire.HopState{Received: 2, Forwarded: 1})...), false)
	f.Add(append(wire.Append(nil, wire.Hello{Version: wire.Version}),
		append(hopAuthFrame(hopKey, 1, wire.HopLimit{Rate: wire.MinHopLimit}), 0x43, 0, 0, 1, 9)...), false)
	f.Fuzz(func(t *testing.T, in []byte, inTLS bool) {
		a, b := MemoryPipe()
		defer a.Close()
		go func() {
			w := io.Writer(a)
			if inTLS {
				w = tls.Client(a, helperConfig())
			}
			_, _ = w.Write(in)
			if c, ok := w.(*tls.Conn); ok {
				_ = c.CloseWrite()
			}
			_ = a.CloseWrite()
		}()
		if inTLS {
			w, err := Accept(t.Context(), b, primaryConfig())
			if err == nil {
				<-w.Done()
			}
			return
		}
		l, name, err := AcceptHS(t.Context(), b)
		if err != nil {
			return
		}
		if len(name) > wire.MaxName {
			t.Errorf("name of %d bytes", len(name))
		}
		if n, err := l.Read(make([]byte, 1)); n > 0 && err == nil { // the first ciphertext, as MP_JOIN would be
			_ = l.Authenticate(hopKey, nil)
		}
		if _, err := io.Copy(io.Discard, l); err == nil {
			if _, err := l.Read(make([]byte, 1)); err != io.EOF {
				t.Error(err)
			}
		}
		l.Close()
	})
}

// TestSendServers checks that SERVERS frames come before the request, only after a change, and not
// after a subflow was requested. Too many of them, or an error of the helper's callback, end the
// pipe.
func TestSendServers(t *testing.T) {
	a, b := MemoryPipe()
	o, w := waitingPair(t, a, b)
	var announced [][]string
	o.OnServers = func(list []string) error { announced = append(announced, list); return nil }
	send := func(list ...string) { w.SendServers(func() []string { return list }) }
	go func() {
		send()
		send("a:1", "b:2")
		send("a:1", "b:2")
		send("b:2")
		l, err := w.Join(t.Context(), "b:2", DefaultResumeTimeout)
		if err != nil {
			t.Error(err)
			return
		}
		send("c:3")
		_, err = l.Write([]byte("x"))
		if err = errors.Join(err, l.Flush()); err != nil {
			t.Error(err)
		}
	}()
	q, err := o.Wait(t.Context())
	if err != nil || q.Server != "b:2" || fmt.Sprint(announced) != "[[] [a:1 b:2] [b:2]]" {
		t.Fatalf("%+v, %v: announced %v", q, err, announced)
	}
	l, err := o.Accept(q, q.ResumeTimeout, wire.RadioNone)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n, err := l.Read(make([]byte, 9)); n != 1 || err != nil {
		t.Errorf("after the subflow began: %d, %v", n, err)
	}

	a, b = MemoryPipe()
	o, w = waitingPair(t, a, b)
	times := 0
	o.OnServers = func([]string) error { times++; return nil }
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for n := range maxServersFrames {
			w.SendServers(func() []string { return []string{fmt.Sprintf("a:%d", n+1)} })
		}
		w.Close() // otherwise a reader without a limit would wait
	}()
	if _, err := o.Wait(t.Context()); !errors.Is(err, wire.ErrMalformed) || times != maxServersFrames {
		t.Errorf("announced %d times of %d: %v", times, maxServersFrames, err)
	}
	<-sent

	a, b = MemoryPipe()
	o, w = waitingPair(t, a, b)
	refused := errors.New("no")
	o.OnServers = func([]string) error { return refused }
	go func() { w.SendServers(func() []string { return []string{"a:1"} }); w.Close() }()
	if _, err := o.Wait(t.Context()); !errors.Is(err, refused) {
		t.Errorf("what the helper does not take: %v", err)
	}
	<-w.Done()
}
