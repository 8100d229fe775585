// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/link/wire"
)

// payloadOf returns the payload of a frame.
func payloadOf(f wire.Frame) []byte { return f.AppendPayload(nil) }

// TestReplay checks that all unconfirmed bytes can be sent again, and that bytes confirmed during
// this are dropped only afterwards.
func TestReplay(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newReplayWithRing()
		sent := make([]byte, 0, 1<<20)
		for len(sent) < 900_000 {
			p := make([]byte, 1+rnd.IntN(50_000))
			rand.NewChaCha8([32]byte{byte(len(sent))}).Read(p)
			n := r.storeWritten(p)
			sent = append(sent, p[:n]...)
			r.written.Add(uint64(n))
			to := r.confirmed + rnd.Uint64N(r.written.Load()-r.confirmed+1)
			if rnd.IntN(10) == 0 {
				from := to
				r.restartReplayAt(from)
				to += rnd.Uint64N(r.written.Load() - to + 1)
				if err := r.onReceived(payloadOf(wire.Received{Count: to})); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				n := min(int(r.written.Load()-from), maxDataPayload)
				if b := r.appendDataFrame(nil, from, n); !bytes.Equal(b[wire.HeaderLen:], sent[from:from+uint64(n)]) {
					t.Fatalf("seed %d: other bytes are sent again", seed)
				}
				r.releaseConfirmed()
			} else if err := r.onReceived(payloadOf(wire.Received{Count: to})); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if held, _ := r.ring.Held(); uint64(held) != r.written.Load()-to {
				t.Fatalf("seed %d: %d bytes are kept, %d are not confirmed", seed, held, r.written.Load()-to)
			}
		}
	}
}

// TestReplayRefuses checks that a RECEIVED frame cannot confirm fewer bytes than before, or more
// than were sent.
func TestReplayRefuses(t *testing.T) {
	r := newReplayWithRing()
	r.written.Add(uint64(r.storeWritten(make([]byte, 100))))
	for _, c := range []struct {
		count uint64
		ok    bool
	}{{50, true}, {50, true}, {49, false}, {101, false}, {100, true}} {
		if err := r.onReceived(payloadOf(wire.Received{Count: c.count})); errors.Is(err,
			wire.ErrMalformed) == c.ok || r.confirmed > 100 {
			t.Errorf("%d: %v", c.count, err)
		}
	}
	if err := r.onReceived([]byte{0xff}); err == nil {
		t.Error("half a frame is taken")
	}
}

// TestReceivedSender checks that data is confirmed after confirmAfter, at once if it is much,
// together with other data if possible, and each byte once.
func TestReceivedSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := make(chan time.Time, 10)
		r := receivedSender{timer: time.AfterFunc(time.Hour, func() { fired <- time.Now() })}
		r.timer.Stop()
		begun := time.Now()
		after := func(want time.Duration) {
			t.Helper()
			if got := (<-fired).Sub(begun); got != want {
				t.Errorf("after %v, not %v", got, want)
			}
			r.markReceivedDue()
			begun = time.Now()
		}
		count := func(b []byte) (n uint64) {
			b = r.appendReceived(b)
			r.due = false
			if len(b) > wire.HeaderLen {
				f, err := wire.ParseReceived(b[wire.HeaderLen:])
				if err != nil {
					t.Fatal(err)
				}
				return f.Count
			}
			return 0
		}
		r.countReceivedData(1)
		r.countReceivedData(2)
		if count(nil) != 0 {
			t.Error("it is confirmed at once")
		}
		if after(confirmAfter); count(nil) != 3 || count(nil) != 0 {
			t.Error("it is not confirmed once")
		}
		r.countReceivedData(confirmBytes)
		if after(0); count(nil) != 3+confirmBytes {
			t.Error("much is not confirmed")
		}
		r.countReceivedData(confirmWithData)
		if n := len(r.appendReceived([]byte{0})); n == 1 || r.confirmed != r.received {
			t.Error("it does not go with other data")
		}
		after(confirmAfter)
		r.resumeConfirmedAt(r.received)
		r.resumeConfirmedAt(r.received - 5) // came over the previous connection
		if after(confirmAfter); count(nil) != r.received {
			t.Error("what came over another connection is not confirmed")
		}
		if len(fired) > 0 || r.scheduled {
			t.Error("the timer runs for nothing")
		}
	})
}

// TestRTTEstimator checks that one position at a time is watched, and confirmed by any later one.
func TestRTTEstimator(t *testing.T) {
	var r rttEstimator
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	r.recordConfirmation(5, at(0))
	r.recordSentPosition(100, at(0))
	r.recordSentPosition(200, at(10)) // another one is watched already
	r.recordConfirmation(99, at(20))
	if r.srtt != 0 {
		t.Errorf("%v before it is confirmed", r.srtt)
	}
	r.recordConfirmation(150, at(40))
	r.recordSentPosition(300, at(50))
	r.recordConfirmation(300, at(50+80))
	if r.min != 40*time.Millisecond || r.srtt != 45*time.Millisecond {
		t.Errorf("%v, at least %v", r.srtt, r.min)
	}
}
