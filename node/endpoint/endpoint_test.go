// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/core/bond"
	"mpbond/link/splice"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bondPair is two ends of a bond over real TCP and TLS on loopback.
type bondPair struct {
	t              testing.TB
	client, server *Endpoint
	ckey, skey     *identity.Key
	ln             *tcp.Listener
	next           wire.SubflowID
	mu             sync.Mutex
	clientDown     int
}

func newBondPair(t testing.TB, subflows int, accept func(*Conn)) *bondPair {
	t.Helper()
	p := &bondPair{t: t}
	var err error
	if p.ckey, err = identity.Generate(); err != nil {
		t.Fatal(err)
	}
	if p.skey, err = identity.Generate(); err != nil {
		t.Fatal(err)
	}
	if p.ln, err = tcp.Listen(context.Background(), "127.0.0.1:0", tcp.Options{}); err != nil {
		t.Fatal(err)
	}
	p.client = New(Config{Bond: bond.Config{OpensStreams: true}, Down: func(*subflow.Subflow, error) {
		p.mu.Lock()
		p.clientDown++
		p.mu.Unlock()
	}})
	p.server = New(Config{Accept: accept})
	for range subflows {
		p.joinDirect()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.client.Close(ctx)
		p.server.Close(ctx)
		p.ln.Close()
	})
	return p
}

// joinDirect adds a subflow at both ends.
func (p *bondPair) joinDirect() wire.SubflowID {
	p.t.Helper()
	return p.joinOver(func(c *tcp.Conn) subflow.Transport { return c }, false)
}

// joinOver adds a subflow whose client end is over's transport of a connection.
func (p *bondPair) joinOver(over func(*tcp.Conn) subflow.Transport, helped bool) wire.SubflowID {
	p.t.Helper()
	p.next++
	accepted := make(chan error, 1)
	go func() {
		c, err := p.ln.Accept()
		if err == nil {
			var sf *subflow.Subflow
			cfg := p.skey.ServerConfig(wire.ALPN, func(k identity.PublicKey) bool { return k == p.ckey.Public() })
			sf, _, err = subflow.Accept(
				context.Background(),
				c,
				cfg,
				func(identity.PublicKey, wire.Join) (wire.OK, error) { return wire.OK{Instance: 1}, nil },
			)
			if err == nil {
				err = p.server.Attach(sf)
			}
		}
		accepted <- err
	}()
	c, err := tcp.Dial(context.Background(), p.ln.Addr().String(), tcp.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	sf, _, err := subflow.Join(
		context.Background(),
		over(c),
		p.ckey.ClientConfig(p.skey.Public(), wire.ALPN),
		wire.Join{Version: wire.Version, Subflow: p.next, Helped: helped, Device: "test"},
	)
	if err == nil {
		err = <-accepted
	}
	if err == nil {
		err = p.client.Attach(sf)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p.next
}

func (p *bondPair) dialStream() *Conn {
	p.t.Helper()
	c, err := p.client.Dial("test:1", wire.ModeBond, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// slowCloser is a transport whose Close waits, as TLS does on a blocked pipe.
type slowCloser struct {
	*tcp.Conn
	let chan struct{}
}

func (r slowCloser) Close() error {
	<-r.let
	return r.Conn.Close()
}

// TestSlowCloseHoldsNobodyUp: other subflows go on during a slow close.
func TestSlowCloseHoldsNobodyUp(t *testing.T) {
	p := newBondPair(t, 1, echoStream)
	let := make(chan struct{})
	slow := p.joinOver(func(c *tcp.Conn) subflow.Transport { return slowCloser{c, let} }, true)
	done := make(chan error, 1)
	go func() {
		p.client.Detach(slow)
		done <- exchangeBytes(p.dialStream(), randomBytes(1<<20))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("nothing moves")
	}
	close(let)
}

// echoStream returns all bytes, then ends.
func echoStream(c *Conn) {
	_, err := io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	if err == nil {
		_ = c.CloseWrite()
	}
	c.Close()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// exchangeBytes sends b over c and checks that the same comes back.
func exchangeBytes(c net.Conn, b []byte) error {
	failed := make(chan error, 1)
	go func() {
		_, err := c.Write(b)
		if err == nil {
			err = c.(*Conn).CloseWrite()
		}
		failed <- err
	}()
	got, err := io.ReadAll(c)
	if err = errors.Join(err, <-failed); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), len(b))
	}
	return c.Close()
}

func TestEcho(t *testing.T) {
	p := newBondPair(t, 2, echoStream)
	for _, n := range []int{0, 1, 1000, 300_000, 20 << 20} {
		if err := exchangeBytes(p.dialStream(), randomBytes(n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestManyStreams(t *testing.T) {
	p := newBondPair(t, 3, echoStream)
	b := randomBytes(100 << 10)
	var wg sync.WaitGroup
	errs := make(chan error, 500)
	for range 500 {
		c := p.dialStream()
		wg.Go(func() {
			if err := exchangeBytes(c, b); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	mem, _ := p.client.bond.BufferedBytes()
	t.Logf("buffers of the client after 500 streams of 100 KB both ways: %v", mem)
}

// TestSubflowsComeAndGo ends and adds subflows all the time.
func TestSubflowsComeAndGo(t *testing.T) {
	p := newBondPair(t, 2, echoStream)
	done := make(chan error, 1)
	go func() { done <- exchangeBytes(p.dialStream(), randomBytes(60<<20)) }()
	churn := 0
	for live := []wire.SubflowID{1, 2}; ; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d subflows were replaced meanwhile", churn)
			return
		default:
		}
		if churn < 40 {
			live = append(live, p.joinDirect())
			if churn%2 == 0 {
				p.client.Detach(live[0])
			} else {
				p.server.Detach(live[0])
			}
			live = live[1:]
			churn++
		}
	}
}

func TestBytesWaitForTheFirstSubflow(t *testing.T) {
	p := newBondPair(t, 0, echoStream)
	c := p.dialStream()
	if _, err := c.Write([]byte("early")); err != nil {
		t.Fatal(err)
	}
	if p.client.NoSubflowFor() == 0 {
		t.Error("no subflow, but WithoutSubflow says there is one")
	}
	p.joinDirect()
	if err := exchangeBytes(c, []byte(" and late")); err == nil || err.Error() != "14 bytes came back of 9, or others" {
		t.Errorf("early bytes did not come: %v", err)
	}
}

func TestResetCarriesItsReason(t *testing.T) {
	p := newBondPair(t, 1, func(c *Conn) { c.ResetWith(wire.CodeConnRefused, "test:1: connection refused") })
	c := p.dialStream()
	err := c.WaitOpen(context.Background())
	var r wire.Reset
	if !errors.As(err, &r) || r.Code != wire.CodeConnRefused || r.Error() != "test:1: connection refused" {
		t.Errorf("WaitOpen: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &r) {
		t.Errorf("Read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.As(err, &r) {
		t.Errorf("Write: %v", err)
	}
}

func TestOpenedAndDeadline(t *testing.T) {
	release := make(chan bool)
	p := newBondPair(t, 1, func(c *Conn) { <-release; c.Opened(); <-release; c.Close() })
	c := p.dialStream()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.WaitOpen(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitOpen before it opened: %v", err)
	}
	release <- true
	if err := c.WaitOpen(context.Background()); err != nil {
		t.Errorf("WaitOpen: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	var ne net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("Read past the deadline: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.WriteTo(io.Discard); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("WriteTo past the deadline: %v", err)
	}
	release <- true
}

// TestPushBack: a reader that does not read bounds what the other end may write and what both hold.
func TestPushBack(t *testing.T) {
	go1 := make(chan *Conn, 1)
	p := newBondPair(t, 1, func(c *Conn) { go1 <- c })
	c := p.dialStream()
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := c.Write(make([]byte, 64<<20))
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("wrote %d bytes that nobody reads: %v", n, err)
	}
	if n > 6<<20 {
		t.Errorf("%d bytes were accepted that nobody reads", n)
	}
	s := <-go1
	got, err := io.CopyN(io.Discard, struct{ io.Reader }{s}, int64(n))
	if err != nil || got != int64(n) {
		t.Errorf("read %d of %d: %v", got, n, err)
	}
	s.Reset()
}

func TestCloseEndsEverything(t *testing.T) {
	p := newBondPair(t, 2, echoStream)
	c := p.dialStream()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p.client.Close(ctx)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a stream of a closed bond is readable")
	}
	if _, err := p.client.Dial("test:1", wire.ModeBond, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("Dial after Close: %v", err)
	}
	if !p.server.PeerClosed() { // Close has waited for the acknowledgement
		t.Error("the other end was not notified")
	}
}

// BenchmarkStream moves one stream from server to client over 1 and 2 subflows, beside a plain TCP
// relay, in MB/s.
func BenchmarkStream(b *testing.B) {
	const block = 1 << 20
	payload := randomBytes(block)
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("subflows=%d", n), func(b *testing.B) {
			p := newBondPair(b, n, func(c *Conn) {
				for range b.N {
					if _, err := c.Write(payload); err != nil {
						b.Error(err)
					}
				}
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, struct{ io.Reader }{c})
				c.Close()
			})
			b.SetBytes(block)
			b.ReportAllocs()
			c := p.dialStream()
			b.ResetTimer()
			got, err := c.WriteTo(io.Discard)
			if err != nil || got != int64(b.N)*block {
				b.Fatalf("%d bytes of %d: %v", got, int64(b.N)*block, err)
			}
			_ = c.CloseWrite()
			c.Close()
		})
	}
	b.Run("plain", func(b *testing.B) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer ln.Close()
		relay, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer relay.Close()
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			for range b.N {
				if _, err := c.Write(payload); err != nil {
					return
				}
			}
			c.Close()
		}()
		go func() {
			c, err := relay.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", ln.Addr().String())
			if err == nil {
				_, _, _ = splice.Both(c, d)
			}
		}()
		b.SetBytes(block)
		c, err := net.Dial("tcp", relay.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		buf := make([]byte, 64<<10)
		got := 0
		for {
			n, err := c.Read(buf)
			got += n
			if err != nil {
				break
			}
		}
		if got != b.N*block {
			b.Fatalf("%d bytes of %d", got, b.N*block)
		}
		c.Close()
	})
}

// TestStreamOpenedDuringFarewell: Close does not wait for a stream that was opened during its
// farewell.
func TestStreamOpenedDuringFarewell(t *testing.T) {
	for range 20 {
		p := newBondPair(t, 1, func(c *Conn) { _, _ = c.Read(make([]byte, 1)); c.Close() })
		stop := make(chan struct{})
		var opener sync.WaitGroup
		opener.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := p.client.Dial("test:1", wire.ModeBond, 0); err == nil {
					defer c.Close()
				}
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		p.server.Close(ctx)
		cancel()
		close(stop)
		opener.Wait()
	}
}

// unreadConn is a transport that can stop passing bytes on.
type unreadConn struct {
	*tcp.Conn
	on   *atomic.Bool
	hear chan struct{}
}

func (d unreadConn) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.on.Load() {
		<-d.hear
	}
	return n, err
}

// TestNothingIsAcceptedDuringFarewell: no stream is accepted during a farewell of any length.
func TestNothingIsAcceptedDuringFarewell(t *testing.T) {
	p := newBondPair(t, 0, func(c *Conn) {
		t.Errorf("a stream to %s was accepted", c.Dest())
		c.Close()
	})
	var on atomic.Bool
	hear := make(chan struct{})
	p.joinOver(func(c *tcp.Conn) subflow.Transport { return unreadConn{c, &on, hear} }, false)
	on.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() { p.server.Close(ctx); close(done) }()
	waittest.Until(t, "the server leaves", func() bool {
		p.server.mu.Lock()
		defer p.server.mu.Unlock()
		return p.server.isClosing
	})
	c := p.dialStream()
	defer c.Close()
	<-done
	close(hear)
}

func TestWriteAfterCloseWrite(t *testing.T) {
	p := newBondPair(t, 1, echoStream)
	c := p.dialStream()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write after CloseWrite: %v", err)
	}
	c.Close()
}
