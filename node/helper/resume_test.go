// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// acceptPipe takes the next pipe that the helper makes to l, and its connection.
func (w *testWorld) acceptPipe(l pipe.Listener, by *identity.Key) (*pipe.Waiting, pipe.Conn) {
	w.t.Helper()
	c, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := pipe.Accept(
		w.t.Context(),
		c,
		by.ServerConfig(wire.PipeALPN, func(k identity.PublicKey) bool { return k == keys().helper.Public() }),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { p.Close() })
	return p, c
}

// joinPipe joins a subflow over a given pipe.
func (w *testWorld) joinPipe(p *pipe.Waiting) (primary *pipe.Link, server *pipe.HSPath) {
	w.t.Helper()
	got := make(chan *pipe.Link, 1)
	go func() {
		l, err := p.Join(w.t.Context(), w.server, pipe.DefaultResumeTimeout)
		if err != nil {
			w.t.Error(err)
		}
		got <- l
	}()
	c, err := w.sl.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	if server, _, err = pipe.AcceptHS(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	if primary = <-got; primary == nil {
		w.t.FailNow()
	}
	if err := server.Authenticate(primary.HopKey(), nil); err != nil {
		w.t.Fatal(err)
	}
	return primary, server
}

// TestSeveralAddresses: a primary at two addresses has a pipe from each. The subflow moves to the
// second pipe when the first one breaks, and when that breaks too, to a new pipe that the helper
// opens and marks as needed.
func TestSeveralAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &testWorld{t: t, pipes: inMemory(), servers: inMemory()}
		w.listenAll("x:1")
		second, err := w.pipes.Listen(t.Context(), "y:1")
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		w.startHelper(Config{Primaries: []string{"laptop@x:1", "laptop@y:1"}})
		one, cut := w.acceptPipe(w.pl, keys().primary)
		two, cut2 := w.acceptPipe(second, keys().primary)
		p, s := w.joinPipe(one)
		synctest.Wait()
		since := w.h.Status().Subflows[0].Since
		const n = 1 << 20
		want, _ := io.ReadAll(newNoise(n, 1))
		go func() { _, _ = s.Write(want) }()
		got := make([]byte, n)
		read := func(from, to int) {
			t.Helper()
			if _, err := io.ReadFull(p, got[from:to]); err != nil {
				t.Fatal(err)
			}
		}
		read(0, n/4)
		cut.Close()
		if err := p.Resume(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		read(n/4, n/2)

		cut2.Close()
		wanted := make(chan *pipe.Waiting, 9)
		for _, l := range []pipe.Listener{w.pl, second, w.pl, second} { // of the targets, and those made now
			next, _ := w.acceptPipe(l, keys().primary)
			next.OnStalled(func(k wire.Token) {
				if k != p.Token() {
					t.Errorf("STALLED of %x, want %x", k, p.Token())
				}
				wanted <- next
			})
		}
		again := <-wanted
		if err := p.Resume(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		read(n/2, n)
		if !bytes.Equal(got, want) {
			t.Error("other bytes")
		}
		if f := w.h.Status().Subflows; len(f) != 1 || f[0].Since != since {
			t.Errorf("not the same subflow: %+v", f)
		}
		p.Close()
		s.Close()
		w.stop()
		time.Sleep(time.Minute)
	})
}

// TestResumeOfAnother: a subflow is not resumed for another device than its own, even with the
// right token.
func TestResumeOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		one, _ := w.acceptPipe(w.pl, keys().primary)
		p, s := w.joinPipe(one)
		two, _ := w.acceptPipe(w.pl, keys().primary)
		synctest.Wait()
		for _, f := range w.h.relays.relayedSubflows() { // as if another primary had made it
			f.primary.Key = keys().server.Public()
		}
		var refused wire.Refuse
		if err := p.Resume(t.Context(), two); !errors.As(err, &refused) || !p.HasEnded() {
			t.Errorf("resumed for another device: %v", err)
		}
		p.Close()
		s.Close()
		w.stop()
		time.Sleep(time.Minute)
	})
}

// TestRefusedRescue: a primary that refuses calls for a broken subflow is called again at growing
// intervals while the subflow can be resumed. It resumes when the refusals end.
func TestRefusedRescue(t *testing.T) {
	for name, f := range map[string]wire.Refuse{
		"limit":     {Code: wire.CodeLimit, Text: "busy"},
		"version":   {Code: wire.CodeVersion, Version: wire.Version + 1, Text: "too old"},
		"malformed": {Code: wire.CodeMalformed, Text: "what"},
		"unknown":   {Code: wire.CodeUnknown, Text: "who"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, inMemory, "x:1", Config{})
				one, cut := w.acceptPipe(w.pl, keys().primary)
				p, s := w.joinPipe(one)
				two, _ := w.acceptPipe(w.pl, keys().primary)
				passed, calls := time.Now().Add(pipe.DefaultResumeTimeout*2/3), 0
				var resumed atomic.Bool
				done := make(chan struct{})
				cut.Close()
				two.Close()
				go func() {
					defer close(done)
					for {
						c, err := w.pl.Accept()
						if err != nil {
							return
						}
						if time.Now().Before(passed) {
							calls++
							refusePipe(t, c, f)
							continue
						}
						next, err := pipe.Accept(
							t.Context(),
							c,
							keys().primary.ServerConfig(wire.PipeALPN, func(identity.PublicKey) bool { return true }),
						)
						if err != nil {
							continue
						}
						next.OnStalled(func(k wire.Token) {
							go func() {
								if k == p.Token() && resumed.CompareAndSwap(false, true) &&
									p.Resume(t.Context(), next) != nil {
									resumed.Store(false)
								}
							}()
						})
					}
				}()
				go func() { _, _ = s.Write([]byte("goes on")) }()
				got := make([]byte, 7)
				if _, err := io.ReadFull(p, got); err != nil || string(got) != "goes on" {
					t.Errorf("after refusals that passed: %q, %v", got, err)
				}
				if late := time.Since(passed); late > 2*maxRefusedWait {
					t.Errorf("it went on %v after the refusals had passed", late)
				}
				p.Close()
				s.Close()
				w.stop()
				w.pl.Close()
				<-done
				if calls < 5 || calls > 25 {
					t.Errorf("%d calls that were refused", calls)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
