// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// newBondHolder returns a bondHolder without a server.
func newBondHolder(t *testing.T, giveUp time.Duration) *bondHolder {
	t.Helper()
	trust, _ := newTrustWith(t)
	b := &bondHolder{
		names:         deviceNames{configured: "laptop", trust: trust},
		streamTimeout: giveUp,
		log:           slog.New(slog.DiscardHandler),
		newClass:      make(chan struct{}, 1),
		open: func(_ wire.BondID, down func(*subflow.Subflow, error)) *endpoint.Endpoint {
			return endpoint.New(endpoint.Config{Bond: bond.Config{OpensStreams: true}, Down: down})
		},
	}
	b.demand = newDemand(b.hasOpenStreams, nil)
	b.openFirstSession()
	return b
}

// TestPatience: a new stream waits for a subflow for the stream timeout, and some seconds if there
// has been none for longer.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Minute)
		dial := func() time.Duration {
			began := time.Now()
			if _, err := b.dialBondStream(t.Context(), "web:80", wire.ModeBond, nil); err == nil {
				t.Fatal("a stream without a subflow")
			}
			return time.Since(began)
		}
		time.Sleep(20 * time.Second)
		if d := dial(); d != 40*time.Second {
			t.Errorf("at first %v", d)
		}
		time.Sleep(time.Hour)
		if d := dial(); d != minStreamWait {
			t.Errorf("after an hour %v", d)
		}
		close(b.closing)
		if d := dial(); d != 0 {
			t.Errorf("at the end %v", d)
		}
	})
}

// TestClassPatience: a stream whose rule allows no working device waits as long.
func TestClassPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go b.runClassLoop(ctx)
		synctest.Wait() // it sleeps until there is a class
		b.mu.Lock()
		id, err := b.classForSettings(&policy.TrafficClass{Devices: []string{"phone"}, Weight: 1})
		b.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		lasts := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			c, err := b.active.endpoint.Dial("web:80", wire.ModeBond, id)
			if err != nil {
				t.Fatal(err)
			}
			var r wire.Reset
			if _, err := c.Read(make([]byte, 1)); !errors.As(err, &r) || r.Code != wire.CodeTimeout {
				t.Errorf("it ended with %v", err)
			}
			if d := time.Since(began); d < want || d > want+2*classInterval {
				t.Errorf("it waited %v, want %v", d, want)
			}
		}
		lasts(time.Minute)
		time.Sleep(time.Hour)
		lasts(minStreamWait)
	})
}

// TestRestart: a new session has another ID. The streams of the old one end, and its supervisors
// get the reason. A stream's class means the same in the new one, and calls for the old one change
// nothing.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Minute)
		old := b.currentSession()
		c, err := old.endpoint.Dial("web:80", wire.ModeBond, 0)
		if err != nil {
			t.Fatal(err)
		}
		settings := &policy.TrafficClass{Devices: []string{"phone"}, Weight: 1}
		b.mu.Lock()
		class, err := b.classForSettings(settings)
		b.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		m := &sessionSubflow{ended: make(chan error, 1)}
		old.subflows[1] = m
		if _, j := b.prepareJoin(); j.Subflow != 1 || j.Bond != old.id || j.Instance != 0 {
			t.Errorf("%+v", j)
		}
		b.replaceSession(old, "the server has restarted")
		if err := <-m.ended; err == nil {
			t.Error("the supervisor gets no reason")
		}
		var r wire.Reset
		if _, err := c.Read(make([]byte, 1)); !errors.As(err, &r) || r.Code != wire.CodeConnReset {
			t.Errorf("the stream ended with %v", err)
		}
		now := b.currentSession()
		if now == old || now.id == old.id {
			t.Error("it is the same session")
		}
		b.replaceSession(old, "again")
		b.endSubflow(old, 1, errors.New("again")) // without a receiver
		if b.currentSession() != now {
			t.Error("who speaks of the old session replaces the new one")
		}
		if _, err := b.sessionOfBond(old.id.String()); err == nil {
			t.Error("the old session is found")
		}
		if s, err := b.sessionOfBond(now.id.String()); err != nil || s != now {
			t.Errorf("the new session is not found: %v", err)
		}
		b.mu.Lock()
		again, err := b.classForSettings(settings)
		b.mu.Unlock()
		if again != class || err != nil {
			t.Errorf("class %d is %d now, %v", class, again, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		b.closeWithFarewell(gone)
		b.replaceSession(now, "too late")
		if b.currentSession() != now {
			t.Error("a session is made after the end")
		}
	})
}

// TestReviewSubflows: each subflow is checked by device and tier, and one that must end gets the
// reason; one that is not attached yet is not touched.
func TestReviewSubflows(t *testing.T) {
	b := newBondHolder(t, time.Minute)
	b.active.subflows[1] = &sessionSubflow{
		device: deviceRef{helper: phoneKey},
		tier:   wire.TierBackup,
		ended:  make(chan error, 1),
	}
	b.active.subflows[2] = &sessionSubflow{device: deviceRef{iface: "wlan0"}, ended: make(chan error, 1)}
	seen := map[deviceRef]wire.Tier{}
	b.endUnwanted(func(c deviceRef, tier wire.Tier) error {
		seen[c] = tier
		return errTierChanged
	})
	if len(seen) != 2 || seen[deviceRef{helper: phoneKey}] != wire.TierBackup || len(b.active.subflows) != 2 {
		t.Errorf("%+v, %d are left", seen, len(b.active.subflows))
	}
}
