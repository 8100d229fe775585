// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"reflect"
	"testing"
	"time"

	"mpbond/base/unit"
)

// Each end's recorded packets agree with the counters of its lines, in order, and a call restarts
// the recording.
func TestTraffic(t *testing.T) {
	t.Parallel()
	l := startLab(t, pairTopology+"delay=\"1ms\"", Options{})
	serveInNode(t, l, "b", true, "test-echo")
	if first, err := l.Traffic(); err != nil || len(first) != 0 {
		t.Fatalf("before anything was recorded: %v %v", first, err)
	}
	before, err := l.Stats(false)
	if err != nil {
		t.Fatal(err)
	}
	cmd, out := startCommand(t, l, "a", "test-ping", "10.77.1.2")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, out)
	}
	all, err := l.Traffic()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	after, err := l.Stats(false)
	if err != nil {
		t.Fatal(err)
	}
	for end, got := range all {
		if got.Link != "l" || got.Node != []string{"a", "b"}[end] {
			t.Errorf("end %d is %s of %s", end, got.Link, got.Node)
		}
		var sent, received unit.Bytes
		last, big := time.Duration(0), 0
		got.Each(func(at time.Duration, n unit.Bytes, up bool) {
			if at < last || at > time.Minute {
				t.Fatalf("a packet at %v after one at %v", at, last)
			}
			last = at
			if up {
				sent += n
			} else {
				received += n
			}
			if n == 1500 {
				big++
			}
		})
		out, in := after.Link("l").Lines[end].Count, after.Link("l").Lines[1-end].Count
		was, wasIn := before.Link("l").Lines[end].Count, before.Link("l").Lines[1-end].Count
		if sent != out.Sent.Bytes-was.Sent.Bytes || received != in.Delivered.Bytes-wasIn.Delivered.Bytes || big < 40 {
			t.Errorf("%s: %v sent, %v received, %d large packets; its lines count %v and %v", got.Node, sent, received,
				big, out.Sent.Bytes-was.Sent.Bytes, in.Delivered.Bytes-wasIn.Delivered.Bytes)
		}
	}
	if again, err := l.Traffic(); err != nil || len(again) != 2 || len(again[0].Sizes) != 0 {
		t.Errorf("nothing has happened since: %v %v", again, err)
	}
}

// Gaps are rounded down, and rounding errors do not add up.
func TestTrafficRounding(t *testing.T) {
	var l trafficLog
	for i := range 1000 {
		l.logTrafficPacket(time.Duration(i)*1999, 1)
	}
	at := time.Duration(0)
	Traffic{Gaps: l.gaps, Sizes: l.sizes}.Each(func(t time.Duration, _ unit.Bytes, _ bool) { at = t })
	if want := 999 * 1999 * time.Nanosecond; want-at >= time.Microsecond || at > want {
		t.Errorf("the last at %v, not %v", at, want)
	}
}

// At most two packets stand for those within 10 ms of the first; bytes and directions stay, and
// times ascend.
func TestCoarse(t *testing.T) {
	all := Traffic{Node: "n", Link: "l",
		Gaps:  []int64{1000, 4000, 1000, 6000, 3999, 0, 100_000},
		Sizes: []int32{-1500, -1500, 40, -1500, -1000, 60, 40}}
	// at 1, 5, 6, 12, 15.999, 15.999, 115.999 ms
	want := Traffic{Node: "n", Link: "l", Gaps: []int64{1000, 5000, 6000, 3999, 100_000}, Sizes: []int32{40, -3000, 60,
		-2500, 40}}
	if got := all.coarsened(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := (Traffic{}).coarsened(); len(got.Sizes) != 0 {
		t.Errorf("%+v", got)
	}
}

// Packets that the full queue drops are not recorded.
func TestTrafficDropped(t *testing.T) {
	t.Parallel()
	l := startLab(t, pairTopology+"rate=\"2Mbit/s\"\ndelay=\"10ms\"\nqueue=\"6KB\"", Options{})
	serveInNode(t, l, "b", false, "test-serve")
	if _, err := l.Traffic(); err != nil {
		t.Fatal(err)
	}
	before, err := l.Stats(false)
	if err != nil {
		t.Fatal(err)
	}
	cmd, out := startCommand(t, l, "a", "test-fetch", "10.77.1.2", "500ms")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), drainTimeout)
	defer cancel()
	if err := l.WaitDrained(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := l.Stats(false)
	if err != nil {
		t.Fatal(err)
	}
	all, err := l.Traffic()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	var sent unit.Bytes
	all[1].Each(func(_ time.Duration, n unit.Bytes, up bool) {
		if up {
			sent += n
		}
	})
	is, was := after.Link("l").Lines[Downlink].Count, before.Link("l").Lines[Downlink].Count
	dropped := is.QueueDrops.Bytes - was.QueueDrops.Bytes
	if want := is.Sent.Bytes - was.Sent.Bytes - dropped; dropped == 0 || sent != want {
		t.Errorf("%v recorded, not %v; %v were dropped", sent, want, dropped)
	}
}
