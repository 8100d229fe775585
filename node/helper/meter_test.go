// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
)

// TestMeter: a relay's rates are those of the last second in each direction and end with it.
func TestMeter(t *testing.T) {
	var m relayRate
	now := time.Unix(0, 0)
	for _, c := range []struct {
		after        time.Duration
		up, down     uint64
		upBps, dnBps unit.Rate
	}{
		{0, 5_000, 9_000_000, 0, 0}, // an existing relay
		{time.Second, 130_000, 10_212_500, unit.Mbps, 9700 * unit.Kbps},
		{500 * time.Millisecond, 192_500, 10_212_500, unit.Mbps, 0},
		{0, 192_500, 10_212_500, unit.Mbps, 0},
		{2 * time.Second, 192_500, 10_212_500, 0, 0},
	} {
		now = now.Add(c.after)
		if m.updateRate(now, c.up, c.down); m.upBps != c.upBps || m.downBps != c.dnBps {
			t.Errorf("%d up and %d down after %v: %v up, %v down", c.up, c.down, c.after, m.upBps, m.downBps)
		}
	}
}

// TestStatusShowsRates: the helper's status has the rates of a relay while it carries data.
func TestStatusShowsRates(t *testing.T) {
	w := &testWorld{t: t, pipes: overTCP(), servers: overTCP()}
	w.listenAll("127.0.0.1:0")
	w.startHelper(Config{})
	primary, server, _ := w.joinSubflow()
	go func() {
		for {
			if _, err := server.Write(make([]byte, 8<<10)); err != nil {
				return
			}
			time.Sleep(time.Millisecond) // 65 Mbit/s are enough
		}
	}()
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := primary.Read(b); err != nil {
				return
			}
		}
	}()
	shown := func() (down, up unit.Rate) {
		for _, f := range w.h.Status().Subflows {
			down, up = down+f.DownBps, up+f.UpBps
		}
		return down, up
	}
	waittest.Until(t, "a rate down is shown", func() bool { down, up := shown(); return down > unit.Mbps && up < down })
	primary.Close()
	server.Close()
}
