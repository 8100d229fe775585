// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

// subflowID returns the ID of the subflow by a device.
func (w *testbed) subflowID(device string) uint32 {
	for _, p := range w.p.Status(false).Subflows {
		if p.Device == device && p.State == api.Up {
			return p.ID
		}
	}
	return 0
}

// TestMeasure: each subflow is measured by itself, both ways. No byte of the measurement's stream
// goes by the other one.
func TestMeasure(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	for _, device := range []string{"laptop", "phone"} {
		for _, direction := range []string{probe.Down, probe.Up, probe.None} {
			path, other := w.subflowID(device), uint32(0)
			for _, p := range w.p.Status(false).Subflows {
				if p.ID != path {
					other = p.ID
				}
			}
			before := w.subflowBytes(other)
			c := w.dialStream(probe.Dest(path))
			const size = 4 * unit.MB
			a, err := probe.Measure(t.Context(), c, probe.Request{Direction: direction, Bytes: size, Ms: 5000}, time.Now)
			if err != nil {
				t.Fatal(device, direction, err)
			}
			c.Close()
			if direction != probe.None && (a.Bytes < size || a.Rate <= 0) {
				t.Errorf("%s %s: %v at %v", device, direction, a.Bytes, a.Rate)
			}
			if a.Seen == "" || a.ClockAhead > time.Minute || a.ClockAhead < -time.Minute {
				t.Errorf("%s: %+v", device, a.About)
			}
			if h := a.Hop; h == nil || h.MTU == 0 || h.MinRTTms <= 0 {
				t.Errorf("%s: %+v", device, h)
			}
			if n := w.subflowBytes(other) - before; n > size/10 {
				t.Errorf("%s %s: %v by the other subflow", device, direction, n)
			}
		}
	}
	for _, p := range w.p.Status(false).Subflows {
		if h := p.Hop; h == nil || h.Packets == 0 || h.RateBps == 0 {
			t.Errorf("status of %s: %+v", p.Device, h)
		}
	}
}

// subflowBytes returns the bytes that a subflow has carried, in both directions.
func (w *testbed) subflowBytes(id uint32) unit.Bytes {
	for _, p := range w.p.Status(false).Subflows {
		if p.ID == id {
			return p.RxBytes + p.TxBytes
		}
	}
	return 0
}

// TestMeasureRefused: an unknown subflow cannot be measured, and only one measurement runs at a
// time.
func TestMeasureRefused(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	var r wire.Reset
	if _, err := w.p.DialStream(t.Context(), probe.Dest(99)); !errors.As(err, &r) || r.Code != wire.CodeClosed {
		t.Errorf("%v", err)
	}
	path := w.subflowID("laptop")
	first := w.dialStream(probe.Dest(path)) // sends nothing yet
	open := func(c interface{ WaitOpen(context.Context) error }) error {
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		defer cancel()
		return c.WaitOpen(ctx)
	}
	type opener interface{ WaitOpen(context.Context) error }
	if err := open(first.(opener)); err != nil {
		t.Fatal(err)
	}
	if err := open(w.dialStream(probe.Dest(path)).(opener)); !errors.As(err, &r) || r.Code != wire.CodeLimit {
		t.Errorf("a second one: %v", err)
	}
	first.Close()
	rig.Eventually(t, func() error { // the server has noticed
		c, err := w.p.DialStream(t.Context(), probe.Dest(path))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = probe.Measure(t.Context(), c, probe.Request{}, time.Now)
		return err
	})
}
