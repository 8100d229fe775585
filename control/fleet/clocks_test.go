// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// clockOff returns a clock that is ahead.
func clockOff(ahead time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(ahead) }
}

// joinAt starts a server whose clock is ahead.
func (w *world) joinAt(name string, ahead time.Duration) *member {
	w.Helper()
	m := w.join(name, func(c *fleet.MemberConfig) { c.SetClock(clockOff(ahead)) })
	w.awaitReady(m)
	return m
}

// newOperator returns another operator with the fleet's key, whose clock is ahead.
func (w *world) newOperator(ahead time.Duration) *fleet.Operator {
	o := fleet.NewOperator(w.store, w.key)
	o.SetClock(clockOff(ahead))
	return o
}

// joinFleet has a primary, whose clock is ahead, apply the list of servers on the engine.
func (w *world) joinFleet(ahead time.Duration) error {
	w.Helper()
	offer, err := fleet.ReadSignedList(w.Context(), w.store)
	w.must(err)
	dir := w.TempDir()
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	w.must(err)
	path := filepath.Join(dir, "fleet.json")
	_, err = fleet.Join(path, trust, w.key.Public(), offer, w.key.Public())
	w.must(err)
	j, err := fleet.LoadJoined(path, trust)
	w.must(err)
	_, _, err = j.Apply(offer, time.Now().Add(ahead))
	return err
}

// TestClocks checks that nothing is refused, and nothing accepted, because the clocks of the operators, the servers and
// the primaries differ from the right one by up to five minutes.
func TestClocks(t *testing.T) {
	const off = 5 * time.Minute
	for _, ahead := range []time.Duration{-off, off} {
		t.Run(fmt.Sprintf("operator %v", ahead), func(t *testing.T) {
			w := newWorld(t)
			op, other := w.newOperator(ahead), w.newOperator(-ahead)
			w.must(op.Renew(t.Context()))
			servers := []*member{w.joinAt("eu1", -ahead), w.joinAt("eu2", ahead)}
			for _, m := range servers {
				if _, _, err := m.Offer(); err != nil {
					t.Errorf("offer: %v", err)
				}
				code, _, err := op.Invite(t.Context(), fleet.InviteTerms{Life: time.Minute})
				w.must(err)
				d := device{newKey(t)}
				if _, err := d.enroll(t.Context(), m, code); err != nil {
					t.Errorf("a new code: %v", err)
				}
				for _, m := range servers {
					w.awaitKnown(m, d, true)
				}
				// the other operator pauses it, and the first one lets it go on
				_, _, err = other.Rule(t.Context(), d.Public(), func(r *fleet.Ruling) { r.Paused = true })
				w.must(err)
				waittest.Until(t, "it is paused", func() bool { return m.Paused(d.Public()) })
				_, _, err = op.Rule(t.Context(), d.Public(), func(r *fleet.Ruling) { r.Paused = false })
				w.must(err)
				waittest.Until(t, "it goes on", func() bool { return !m.Paused(d.Public()) })
				// one operator drains a server, and the other ends that
				for _, o := range []*fleet.Operator{op, other, op, other} {
					draining := !m.IsDraining()
					w.must(o.Drain(t.Context(), m.State().Name, draining))
					waittest.Until(t, fmt.Sprintf("it drains: %v", draining),
						func() bool { return m.IsDraining() == draining })
				}
				_, behind, err := other.Revoke(t.Context(), d.Public(), 0)
				w.must(err)
				_ = behind
				for _, m := range servers {
					w.awaitKnown(m, d, false)
				}
				short, _, err := op.Invite(t.Context(), fleet.InviteTerms{Life: time.Second})
				w.must(err)
				waittest.Until(t, "the code has ended", func() bool {
					_, err := w.store.Get(t.Context(), fleet.Codes, short.ID())
					return err == fleet.ErrNoRecord
				})
				if _, err := (device{newKey(t)}).enroll(t.Context(), m, short); !fault.Is(err, fault.UnknownDevice) {
					t.Errorf("a code whose life is over: %v", err)
				}
				if n := len(m.Status().Running); n != 2 {
					t.Errorf("%d servers run", n)
				}
			}
			for _, o := range []*fleet.Operator{op, other, op} {
				w.must(o.Renew(t.Context()))
				for _, primary := range []time.Duration{-off, 0, off} {
					if err := w.joinFleet(primary); err != nil {
						t.Errorf("a primary whose clock is %v ahead: %v", primary, err)
					}
				}
			}
			waittest.Until(t, "the newest list is known", func() bool {
				list := servers[0].Status().List
				return len(list.Servers) == 3 && list.Number == servers[1].Status().List.Number
			})
		})
	}
}

// namesClock reports whether the hint of an error says that a clock may be wrong.
func namesClock(err error) bool { return strings.Contains(fault.HintOf(err), "clock") }

// TestClockOffByADay checks that a server, operator or primary whose clock is off by a day gets errors that name the
// clock, and that revocations work.
func TestClockOffByADay(t *testing.T) {
	for _, ahead := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			w := newWorld(t)
			right := w.joinAt("eu1", 0)
			code, d := w.invite(fleet.InviteTerms{}), device{newKey(t)}
			if _, err := d.enroll(t.Context(), right, code); err != nil {
				t.Fatal(err)
			}
			// a server
			wrong := w.joinAt("eu2", ahead)
			if _, err := (device{newKey(t)}).enroll(t.Context(), wrong,
				w.invite(fleet.InviteTerms{})); !namesClock(err) {
				t.Errorf("a code at a server: %v (%v)", err, fault.HintOf(err))
			}
			if _, _, err := wrong.Offer(); ahead < 0 && !namesClock(err) {
				t.Errorf("an offer of a server: %v (%v)", err, fault.HintOf(err))
			}
			if st := wrong.Status(); ahead < 0 && !namesClock(st.Problem) {
				t.Errorf("the status of a server: %v", st.Problem)
			}
			w.awaitKnown(wrong, d, true) // what is known of devices depends on no clock
			waittest.Until(t, "the status shows the wrong clock", func() bool {
				v, err := fleet.ReadStatus(t.Context(), w.store)
				w.must(err)
				return namesClock(v.Problem) && strings.Contains(v.Problem.Error(), "eu2")
			})
			w.must(w.Renew(t.Context())) // the other server's clock is right
			w.must(wrong.stop())
			// an operator
			op := w.newOperator(ahead)
			for name, f := range map[string]func() error{
				"invite": func() error {
					_, _, err := op.Invite(t.Context(),
						fleet.InviteTerms{Life: time.Hour})
					return err
				},
				"renew": func() error { return op.Renew(t.Context()) },
				"add": func() error {
					return op.AddServer(t.Context(), fleet.Server{Name: "eu3", Key: newKey(t).Public(),
						Addresses: []string{"eu3:7600"}})
				},
				"remove": func() error { return op.RemoveServer(t.Context(), "eu2") },
			} {
				if err := f(); !namesClock(err) {
					t.Errorf("%s by an operator: %v (%v)", name, err, fault.HintOf(err))
				}
			}
			if _, _, err := op.Revoke(t.Context(), d.Public(), 0); err != nil {
				t.Errorf("revoke by an operator: %v", err)
			}
			w.awaitKnown(right, d, false)
			// a primary
			if err := w.joinFleet(ahead); ahead < 0 && !namesClock(err) {
				t.Errorf("a primary: %v (%v)", err, fault.HintOf(err))
			}
			if err := w.joinFleet(100 * ahead.Abs()); !namesClock(err) {
				t.Errorf("a primary after the list's life: %v (%v)", err, fault.HintOf(err))
			}
		})
	}
}

// TestCacheFromTheFuture checks that a server whose clock was set back since its cache was written serves nobody before
// the engine answers, and says so.
func TestCacheFromTheFuture(t *testing.T) {
	w := newWorld(t)
	a := w.joinAt("eu1", time.Hour)
	w.must(a.stop())
	var log logText
	again := w.join("eu1", func(c *fleet.MemberConfig) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if text := log.String(); !strings.Contains(text, "check the clock") {
		t.Errorf("it logs %q", text)
	}
	w.awaitReady(again)
	if _, err := (device{newKey(t)}).enroll(t.Context(), again, w.invite(fleet.InviteTerms{})); err != nil {
		t.Error(err)
	}
}

// logText collects what is logged. Safe for concurrent use.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
