// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// TestJoins checks that a video of 500 kbit/s starts over a device of 375 kbit/s and stalls, but no
// longer stalls after a device of 250 kbit/s is found, and that each byte comes once except for
// copies.
func TestJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, .375*mbit)
		const n, size = 30, 250_000
		data, paths := r.vod("/v", n, size), hlsPaths("/v", n)
		r.get("/v/list.m3u8", nil)
		alone := r.play(paths[:10], data[:10], 4*time.Second, 12*time.Second)
		r.joins <- r.device(.25 * mbit)
		close(r.joins)                                                   // no more devices will be found
		r.play(paths[10:14], data[10:14], 4*time.Second, 12*time.Second) // segments come in pairs: the second of one
		both := r.play(paths[14:], data[14:], 4*time.Second, 12*time.Second)
		res := r.stop()
		if alone < 4*time.Second || both > 0 {
			t.Errorf("the player stalled for %v, and for %v with another device", alone, both)
		}
		var all, wasted unit.Bytes
		for _, d := range res.Devices {
			all, wasted = all+d.Bytes, wasted+d.Wasted
		}
		if len(res.Devices) != 2 || res.Devices[1].Bytes < (n-10)*size/4 || all-wasted != n*size ||
			wasted > n*size/10 || res.Segments != n || res.Passed != 0 {
			t.Errorf("%+v", res)
		}
	})
}

// TestJoinsBroken checks that a device that joins brings a segment that the local device fails to
// bring, and that the player gets it correctly.
func TestJoinsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, .01*mbit) // brings 12 of 200 kB within 10 s
		data := r.vod("/v", 3, 200_000)
		r.get("/v/list.m3u8", nil)
		go func() {
			time.Sleep(5 * time.Second)
			r.joins <- r.device(4 * mbit)
		}()
		began := time.Now()
		for i, p := range hlsPaths("/v", 3) {
			r.get(p, data[i])
		}
		took := time.Since(began)
		if res := r.stop(); took > 10*time.Second || res.Segments != 3 || res.Devices[1].Bytes < 500_000 {
			t.Errorf("within %v: %+v", took, res)
		}
	})
}

// TestMeteredNow checks that the metered state of a device is read when it joins and while it is
// used.
func TestMeteredNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, mbit)
		var metered atomic.Bool
		metered.Store(true)
		phone := r.device(mbit)
		phone.Metered = metered.Load
		r.joins <- phone
		close(r.joins)
		for _, want := range []bool{true, false, true} {
			metered.Store(want)
			time.Sleep(time.Second) // virtual
			r.proxy.prefetcher.loop.Lock()
			list := slices.Clone(r.proxy.prefetcher.loop.Board.DeviceStates(time.Now())) // of the board
			r.proxy.prefetcher.loop.Unlock()
			if len(list) != 2 || list[0].Metered || list[1].Metered != want {
				t.Errorf("metered %v: %+v", want, list)
			}
		}
		r.stop()
	})
}
