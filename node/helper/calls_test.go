// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
	"mpbond/node/refusal"
)

// lines counts the lines of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

// refusePipe is a primary that answers a helper's HELLO with a REFUSE.
func refusePipe(t *testing.T, c pipe.Conn, f wire.Refuse) {
	conn := tls.Server(c, keys().primary.ServerConfig(wire.PipeALPN, func(identity.PublicKey) bool { return true }))
	defer conn.Close()
	if _, _, err := wire.NewReader(conn).Next(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Write(wire.Append(nil, f)); err != nil {
		t.Error(err)
	}
}

// TestRefused: a primary that refuses a helper is called some 12 times an hour at each address
// instead of 6 times a second. The log has one line for any number of addresses, and the status has
// the reason. Another address of this device, or another trust file, ends the wait.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(*testing.T, pipe.Conn)
		reason string
	}{
		"newer primary": {func(t *testing.T, c pipe.Conn) {
			refusePipe(t, c, wire.Refuse{Code: wire.CodeVersion, Version: wire.Version + 1, Text: "too old"})
		}, fmt.Sprintf("version %d here, %d there: upgrade mpbond on this device", wire.Version, wire.Version+1)},
		"older primary": {func(t *testing.T, c pipe.Conn) {
			refusePipe(t, c, wire.Refuse{Code: wire.CodeVersion, Version: wire.Version - 1, Text: "too new"})
		}, fmt.Sprintf("version %d here, %d there: upgrade mpbond on laptop", wire.Version, wire.Version-1)},
		"unknown": {func(t *testing.T, c pipe.Conn) {
			if _, err := pipe.Accept(t.Context(), c, keys().primary.ServerConfig(wire.PipeALPN,
				func(identity.PublicKey) bool { return false })); !fault.Is(err, fault.UnknownDevice) {
				t.Error(err)
			}
		}, "the other end refused the key of this device"},
		"another device": {func(t *testing.T, c pipe.Conn) {
			_, _ = pipe.Accept(t.Context(), c, keys().server.ServerConfig(wire.PipeALPN,
				func(identity.PublicKey) bool { return true }))
		}, "a device with another key answered"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lines
				var list atomic.Pointer[map[netip.Addr]bool]
				list.Store(&map[netip.Addr]bool{netip.MustParseAddr("10.0.0.7"): true})
				w := &testWorld{t: t, pipes: inMemory(), servers: inMemory(), prepare: func(h *Helper) {
					h.log, h.calls.log = slog.New(&log), slog.New(&log)
					h.addressWatch.listAddresses = func() (map[netip.Addr]bool, error) { return *list.Load(), nil }
				}}
				w.listenAll("x:1")
				var calls atomic.Int64
				go func() {
					for {
						conn, err := w.pl.Accept()
						if err != nil {
							return
						}
						calls.Add(1)
						go c.refuse(t, conn)
					}
				}()
				w.startHelper(Config{})
				time.Sleep(time.Hour)
				if n := calls.Load(); n < 10 || n > 25 {
					t.Errorf("%d calls in an hour", n)
				}
				if n := log.n.Load(); n < 1 || n > 2 {
					t.Errorf("%d lines in an hour", n)
				}
				r := w.h.Refusals()
				if len(r) != 1 || r[0].Device != "laptop" || !strings.HasPrefix(r[0].Reason, c.reason) ||
					r[0].Count != int(calls.Load()) {
					t.Errorf("refusals %+v, want %q", r, c.reason)
				}
				if p := w.h.Status().Pipes[0]; p.State != "retrying" ||
					!strings.HasPrefix(p.Error, "refused: "+c.reason) {
					t.Errorf("pipe %+v", p)
				}
				for what, happen := range map[string]func(){
					"another address":    func() { list.Store(&map[netip.Addr]bool{netip.MustParseAddr("10.0.0.8"): true}) },
					"another trust file": w.h.TrustChanged,
				} {
					time.Sleep(2 * time.Second) // addresses are compared each second
					before := calls.Load()
					happen()
					time.Sleep(1100 * time.Millisecond)
					if n := calls.Load() - before; n != 1 {
						t.Errorf("%s: %d calls", what, n)
					}
				}
				time.Sleep(2*time.Hour + 2*refusal.LongestWait)
				if n := log.n.Load(); n < 3 || n > 4 {
					t.Errorf("%d lines in over three hours, one an hour wanted", n)
				}
				w.stop()
				w.pl.Close()
				synctest.Wait()
			})
		})
	}
}

// TestRefusedThenTaken: a refusal is forgotten once the device is accepted.
func TestRefusedThenTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		c, err := w.pl.Accept()
		if err != nil {
			t.Fatal(err)
		}
		refusePipe(t, c, wire.Refuse{Code: wire.CodeVersion, Version: wire.Version + 1})
		time.Sleep(time.Millisecond)
		if len(w.h.Refusals()) != 1 {
			t.Errorf("refusals %+v", w.h.Refusals())
		}
		p, s, _ := w.joinSubflow()
		if r := w.h.Refusals(); len(r) != 0 {
			t.Errorf("refusals %+v", r)
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

func TestLastLog(t *testing.T) {
	var l lastLog
	now := time.Now()
	for i, c := range []struct {
		text string
		at   time.Duration
		due  bool
	}{{"a", 0, true}, {"a", time.Minute, false}, {"b", time.Minute, true}, {"a", time.Minute, true},
		{"a", 59 * time.Minute, false}, {"a", 61 * time.Minute, true}} {
		if got := l.shouldLogTrouble(c.text, now.Add(c.at)); got != c.due {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// TestPipeCaller: each target has a waiting pipe until it is stopped. A used pipe is passed on and
// replaced; a dropped one is replaced, at once after a sleep.
func TestPipeCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		carrier, log := inMemory(), slog.New(slog.DiscardHandler)
		l, err := carrier.Listen(t.Context(), "x:1")
		if err != nil {
			t.Fatal(err)
		}
		taken := make(chan pipe.Request, 1)
		c := &pipeCaller{carrier: carrier, key: keys().helper, name: "phone", log: log,
			announcer: newAnnouncer(
				func() wire.Facts { return wire.Facts{} },
				func() []identity.PublicKey { return nil },
			),
			onTaken: func(_ context.Context, _ *target, o *pipe.Offer, q pipe.Request) {
				_ = o.Refuse(wire.CodeLimit, "not now")
				taken <- q
			}}
		x := targetAt(keys().primary.Public(), "x:1")
		c.startOffering(t.Context(), x)
		accept := func() *pipe.Waiting {
			t.Helper()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			p, err := pipe.Accept(
				t.Context(),
				conn,
				keys().primary.ServerConfig(wire.PipeALPN, func(identity.PublicKey) bool { return true }),
			)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		began := time.Now()
		if _, err := accept().Join(t.Context(), "192.0.2.7:7600", pipe.DefaultResumeTimeout); err == nil {
			t.Error("it was refused, and joined")
		}
		if q := <-taken; q.Server != "192.0.2.7:7600" {
			t.Errorf("asked for %+v", q)
		}
		a := accept()
		time.Sleep(2 * steadyPipeTime)
		if state, _, _ := x.currentPipeState(); state != stateWaiting || a.Err() != nil {
			t.Errorf("%s, %v", state, a.Err())
		}
		c.callAfterSleep()
		synctest.Wait()
		if state, _, err := x.currentPipeState(); state != stateRetrying || err != errSlept {
			t.Errorf("after a sleep: %s, %v", state, err)
		}
		b := accept()
		if took := time.Since(began) - 2*steadyPipeTime; took > 2*minCallBackoff {
			t.Errorf("the next pipe came after %v", took)
		}
		l.Close()
		b.Close()
		time.Sleep(time.Hour)
		if state, since, _ := x.currentPipeState(); state != stateRetrying || time.Since(since) < 59*time.Minute {
			t.Errorf("a primary that is away: %s, for %v", state, time.Since(since))
		}
		x.stop()
		c.tasks.Wait()
		a.Close()
	})
}
