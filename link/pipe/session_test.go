// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// linkTest is a Link with both its ends, and what is needed to move it.
type linkTest struct {
	t               testing.TB
	helper, primary *Link

	mu   sync.Mutex
	a, b Conn // the newest connection, at the helper and at the primary
}

func newLinkTest(t testing.TB) *linkTest {
	p := &linkTest{t: t}
	p.a, p.b = MemoryPipe()
	p.helper, p.primary = linkPair(t, p.a, p.b)
	return p
}

// cutConn breaks the newest connection and loses the data in flight.
func (p *linkTest) cutConn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.a.Close()
	p.b.Close()
}

// resumeOver resumes the Link over a new connection. The helper answers after delay. If breaks is
// not 0, the connection breaks after that time.
func (p *linkTest) resumeOver(delay, breaks time.Duration) error {
	a, b := MemoryPipe()
	o, w := waitingPair(p.t, a, b)
	p.mu.Lock()
	p.a, p.b = a, b
	p.mu.Unlock()
	if breaks > 0 {
		time.AfterFunc(breaks, func() { a.Close(); b.Close() })
	}
	var done sync.WaitGroup
	done.Go(func() {
		q, err := o.Wait(p.t.Context())
		if time.Sleep(delay); err == nil && q.Resume != nil {
			_ = p.helper.AcceptResume(o, *q.Resume)
		}
	})
	err := p.primary.Resume(p.t.Context(), w)
	if err != nil {
		a.Close()
	}
	done.Wait()
	return err
}

// TestRandomBreaks sends in both directions while connections break, change while they still work,
// and break during a change, at random. No byte may be lost, repeated or reordered.
func TestRandomBreaks(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomBreaks(t, seed) })
		})
	}
}

func randomBreaks(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	p := newLinkTest(t)
	ctx, stop := context.WithCancel(t.Context())
	var all, moving, ends sync.WaitGroup
	const n = 3 << 20
	if seed%2 == 0 { // as a relay does
		p.helper.SetReplayRing(NewRing(512 << 10))
	}
	for i, dir := range []struct{ from, to *Link }{{p.helper, p.primary}, {p.primary, p.helper}} {
		sent := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(i)}).Read(sent)
		want := sha256.Sum256(sent)
		w, r := rand.New(rand.NewPCG(seed, uint64(i))), rand.New(rand.NewPCG(seed, uint64(10+i)))
		all.Go(func() {
			for b := sent; len(b) > 0; {
				m := min(len(b), 1+w.IntN(100_000))
				if err := dir.from.WaitWritable(); err != nil {
					t.Error(err)
					return
				}
				if !dir.from.replay.ownsRing {
					m = dir.from.replay.storeWritten(b[:m])
				}
				if k, err := dir.from.Write(b[:m]); k != m || err != nil {
					t.Error(k, err)
					return
				}
				b = b[m:]
				time.Sleep(time.Duration(w.IntN(10)) * time.Millisecond)
			}
		})
		all.Add(1)
		ends.Go(func() {
			h := sha256.New()
			buf := make([]byte, 64<<10)
			for left := n; left > 0; {
				k, err := dir.to.Read(buf[:min(left, 1+r.IntN(len(buf)))])
				h.Write(buf[:k])
				if left -= k; err != nil {
					t.Errorf("%d bytes missing: %v", left, err)
					all.Done()
					return
				}
				time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			}
			if !bytes.Equal(h.Sum(nil), want[:]) {
				t.Error("other bytes")
			}
			all.Done()
			if k, err := io.Copy(io.Discard, dir.to); k != 0 || err != nil {
				t.Errorf("%d bytes after all, %v", k, err)
			}
		})
	}
	moving.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			if rnd.IntN(2) == 0 {
				p.cutConn()
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
			for ctx.Err() == nil {
				if rnd.IntN(3) > 0 {
					if p.resumeOver(time.Duration(rnd.IntN(30))*time.Millisecond, 0) == nil {
						break
					}
				} else {
					_ = p.resumeOver(0, time.Duration(1+rnd.IntN(100_000))) // up to 0.1 ms after RESUME
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
	all.Wait()
	stop()
	moving.Wait()
	for time.Sleep(time.Millisecond); p.primary.IsBroken() || p.helper.IsBroken(); time.Sleep(time.Millisecond) {
		_ = p.resumeOver(0, 0)
	}
	c := p.primary.Counts()
	if t.Failed() || c.Migrated+c.Resumed == 0 {
		t.Errorf("%+v; at the helper %+v", c, p.helper.Counts())
	}
	// Confirmed bytes are not kept.
	time.Sleep(time.Second)
	for _, l := range []*Link{p.helper, p.primary} {
		if now, most := l.replay.ring.Held(); now != 0 || most > maxReplay {
			t.Errorf("%d bytes kept, at most %d", now, most)
		}
	}
	for _, l := range []*Link{p.helper, p.primary} {
		if err := l.CloseWrite(); err != nil {
			t.Error(err)
		}
	}
	ends.Wait()
	p.primary.Close()
	p.helper.Close()
	time.Sleep(time.Minute) // all timers have fired
}

// TestResumeTimeout checks that both ends of a Link that is not resumed end after that time, and
// that data received before is not lost.
func TestResumeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLinkTest(t)
		_, _ = p.helper.Write([]byte("hello"))
		synctest.Wait()
		if _, err := io.ReadFull(p.primary, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		p.cutConn()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := p.helper.Read(make([]byte, 1)); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
				t.Errorf("helper: %v", err)
			}
		})
		got, err := io.ReadAll(p.primary)
		if string(got) != "ello" || !fault.Is(err, fault.Unreachable) || time.Since(began) != DefaultResumeTimeout {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
		all.Wait()
		if _, err := p.primary.Write([]byte("x")); err == nil {
			t.Error("an ended session takes bytes")
		}
		if err := p.primary.WaitWritable(); err == nil {
			t.Error("an ended session is writable")
		}
		if p.resumeOver(0, 0) == nil {
			t.Error("resumed after its end")
		}
	})
}

// TestWriteDuringBreak checks that a break causes no error for the writer, and that waiting calls
// wake up after it.
func TestWriteDuringBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLinkTest(t)
		go func() { _, _ = io.Copy(io.Discard, p.helper) }()
		got := make(chan byte)
		go func() {
			for b := make([]byte, 1); ; {
				if _, err := p.primary.Read(b); err != nil {
					close(got)
					return
				}
				got <- b[0]
			}
		}()
		p.cutConn()
		synctest.Wait()
		if !p.primary.IsBroken() || !p.helper.IsBroken() {
			t.Fatal("nobody noticed")
		}
		if _, err := p.helper.Probe(); err == nil {
			t.Error("nothing carries it, and its state is reported")
		}
		<-p.primary.ConnNeeded()
		if _, err := p.helper.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		writable := make(chan error, 1)
		go func() { writable <- p.helper.WaitWritable() }()
		time.Sleep(5 * time.Second)
		select {
		case <-writable:
			t.Error("writable while nothing carries it")
		default:
		}
		if err := p.resumeOver(0, 0); err != nil {
			t.Fatal(err)
		}
		if b := <-got; b != 'x' {
			t.Errorf("got %q", b)
		}
		if err := <-writable; err != nil {
			t.Error(err)
		}
		if c := p.primary.Counts(); c.Resumed != 1 || c.Migrated != 0 || c.Downtime != 5*time.Second ||
			time.Since(c.LastChange) > time.Second {
			t.Errorf("%+v", c)
		}
		p.primary.Close()
		<-got
		time.Sleep(time.Minute)
	})
}

// TestReplayIsBounded checks that a primary accepts only maxReplay bytes while nothing is
// confirmed.
func TestReplayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLinkTest(t)
		p.cutConn()
		go func() { _, _ = io.Copy(io.Discard, p.primary) }()
		done := make(chan int, 1)
		go func() {
			n, _ := p.primary.Write(make([]byte, 2*maxReplay))
			done <- n
		}()
		time.Sleep(time.Second)
		if now, _ := p.primary.replay.ring.Held(); now != maxReplay {
			t.Errorf("%d bytes kept", now)
		}
		p.primary.Close()
		if n := <-done; n != maxReplay {
			t.Errorf("%d bytes taken", n)
		}
		p.helper.Close()
		time.Sleep(time.Minute)
	})
}

// TestUntrueCounts checks that impossible counts and late attempts are refused or end the Link.
func TestUntrueCounts(t *testing.T) {
	for name, c := range map[string]struct {
		f     func(p *linkTest, o *Offer, w *Waiting) error // at the primary
		fatal bool
	}{
		"RESUME of more than was sent": {func(p *linkTest, _ *Offer, w *Waiting) error {
			_, err := w.exchangeRequest(p.t.Context(), time.Second, wire.Resume{Token: p.primary.Token(), Attempt: 9,
				Received: 1}, wire.TypeResumed)
			return err
		}, false},
		"RESUME of an old attempt": {func(p *linkTest, _ *Offer, w *Waiting) error {
			_, err := w.exchangeRequest(p.t.Context(), time.Second, wire.Resume{Token: p.primary.Token()}, wire.TypeResumed)
			return err
		}, false},
		"RECEIVED of more than was sent": {func(p *linkTest, _ *Offer, w *Waiting) error {
			p.primary.receivedSender.received = 5
			p.primary.sendReceived()
			_, err := p.helper.Read(make([]byte, 1))
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newLinkTest(t)
				a, b := MemoryPipe()
				o, w := waitingPair(t, a, b)
				go func() {
					if q, err := o.Wait(t.Context()); err == nil {
						_ = p.helper.AcceptResume(o, *q.Resume)
					}
				}()
				err := c.f(p, o, w)
				if err == nil || p.helper.HasEnded() != c.fatal {
					t.Errorf("%v; ended %v", err, p.helper.HasEnded())
				}
				w.Close()
				o.Close()
				p.primary.Close()
				p.helper.Close()
				time.Sleep(time.Minute)
			})
		})
	}
	// The primary does not trust a helper's counts either.
	for name, answer := range map[string]wire.Frame{
		"sends from beyond what we have": wire.Resumed{From: 1},
		"has more than we sent":          wire.Resumed{Received: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newLinkTest(t)
				a, b := MemoryPipe()
				o, w := waitingPair(t, a, b)
				go func() {
					if _, err := o.Wait(t.Context()); err == nil {
						_, _ = o.tls.Write(wire.Append(nil, answer))
					}
				}()
				if err := p.primary.Resume(t.Context(), w); !errors.Is(err, wire.ErrMalformed) ||
					!p.primary.HasEnded() {
					t.Errorf("%v; ended %v", err, p.primary.HasEnded())
				}
				o.Close()
				p.helper.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestRefusedResumeEnds checks that a helper without the session, for example after a restart, ends
// it at once.
func TestRefusedResumeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLinkTest(t)
		p.cutConn()
		a, b := MemoryPipe()
		o, w := waitingPair(t, a, b)
		go func() {
			if _, err := o.Wait(t.Context()); err == nil {
				_ = o.Refuse(wire.CodeClosed, "who?")
			}
		}()
		var r wire.Refuse
		if err := p.primary.Resume(t.Context(), w); !errors.As(err, &r) || !p.primary.HasEnded() {
			t.Errorf("%v", err)
		}
		if _, err := p.primary.Read(make([]byte, 1)); !errors.As(err, &r) {
			t.Errorf("the reader got %v", err)
		}
		p.helper.Close()
		time.Sleep(time.Minute)
	})
}

// TestNothingIsConfirmedAfterTheEnd checks that no RECEIVED follows HOP_END, because the other end
// no longer reads.
func TestNothingIsConfirmedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLinkTest(t)
		if err := p.primary.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(p.helper, io.LimitReader(endlessReader{}, 300_000)) }()
		if _, err := io.CopyN(io.Discard, p.primary, 300_000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // all timers have fired
		if got, confirmed := p.primary.receivedSender.received, p.primary.receivedSender.confirmed; got < 300_000 ||
			confirmed != 0 {
			t.Errorf("%d bytes came, %d are confirmed", got, confirmed)
		}
		p.primary.Close()
		p.helper.Close()
	})
}

type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) { return len(b), nil }

// TestCloseIsNoBreak checks that the other end learns of Close at once.
func TestCloseIsNoBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLinkTest(t)
		began := time.Now()
		_, _ = p.primary.Write([]byte("bye"))
		p.primary.Close()
		if got, err := io.ReadAll(p.helper); string(got) != "bye" || err != nil || time.Since(began) != 0 {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
		if _, err := p.primary.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		p.helper.Close()
		time.Sleep(time.Minute)
	})
}

// blindConn is a connection whose carrier knows nothing about the other end.
type blindConn struct{ Conn }

func (c blindConn) Probe() (estimate.Hop, error) {
	h, err := c.Conn.Probe()
	h.Blind = true
	return h, err
}

// TestBlindCarrier checks that the Link itself knows what has arrived and estimates round trips.
func TestBlindCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := MemoryPipe()
		h, p := linkPair(t, blindConn{a}, b)
		go func() { _, _ = io.Copy(io.Discard, h) }()
		if _, err := h.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if s, err := h.Probe(); err != nil || s.Queue != 1000 || s.Acked != 0 {
			t.Errorf("on its way: %+v, %v", s, err)
		}
		time.Sleep(30 * time.Millisecond)
		_, _ = io.ReadFull(p, make([]byte, 1000))
		time.Sleep(time.Second)
		if s, err := h.Probe(); err != nil || s.Queue != 0 || s.Acked != 1000 || s.SRTT < 30*time.Millisecond ||
			s.SRTT > 30*time.Millisecond+confirmAfter {
			t.Errorf("arrived: %+v, %v", s, err)
		}
		p.Close()
		h.Close()
		time.Sleep(time.Minute)
	})
}

// TestStallDetector checks that bytes sent just now do not count as stalled after a time without
// updates, and that unacknowledged bytes count after three round trips and 250 ms.
func TestStallDetector(t *testing.T) {
	const look = 25 * time.Millisecond
	var s stallDetector
	start := time.Now()
	for _, c := range []struct {
		from, to time.Duration // time of the first and last update
		hop      estimate.Hop
		stalled  time.Duration // first stalled time; 0: never
	}{
		{0, time.Second, estimate.Hop{Acked: 10}, 0},
		{7 * time.Second, 7200 * time.Millisecond, estimate.Hop{Acked: 10, Queue: 500, SRTT: 5 * time.Millisecond}, 0},
		{7225 * time.Millisecond, 8 * time.Second, estimate.Hop{Acked: 510, Queue: 500,
			SRTT: 5 * time.Millisecond}, 7475 * time.Millisecond},
		{8025 * time.Millisecond, 9 * time.Second, estimate.Hop{Acked: 900, Queue: 500,
			SRTT: 200 * time.Millisecond}, 8625 * time.Millisecond},
		// The bytes are in the sender's own buffer.
		{9025 * time.Millisecond, 10 * time.Second, estimate.Hop{Acked: 900, Queue: 500, Unsent: 500}, 0},
	} {
		for at := c.from; at <= c.to; at += look {
			if got, want := s.observeHopStall(start.Add(at), c.hop), c.stalled > 0 && at >= c.stalled; got != want {
				t.Fatalf("at %v: stalled %v, want %v", at, got, want)
			}
		}
	}
	// Updates may be rare.
	s = stallDetector{}
	for i, want := range []bool{false, true, true} {
		if got := s.observeHopStall(start.Add(time.Duration(i)*time.Second),
			estimate.Hop{Queue: 500, SRTT: time.Millisecond}); got != want {
			t.Errorf("look %d: stalled %v", i, got)
		}
	}
}
