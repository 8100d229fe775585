// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

func TestRecordings(t *testing.T) {
	points, err := ParseRates([]string{"0s: 20Mbit/s", "1s: 3Mbit/s", "at 1500ms: 0"}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	even := NewRecording(500*time.Millisecond, []unit.Rate{20e6, 20e6, 3e6, 0})
	for at, want := range map[time.Duration]unit.Rate{
		-time.Second: 20e6, 0: 20e6, 999 * time.Millisecond: 20e6, time.Second: 3e6, 1600 * time.Millisecond: 0,
		2 * time.Second: 20e6, 3100 * time.Millisecond: 3e6,
	} {
		for _, r := range []*Recording{points, even} {
			if got := r.At(at); got != want {
				t.Errorf("at %v: %v, want %v", at, got, want)
			}
		}
	}
	late, err := ParseRates([]string{"0s: 0", "1s: 5Mbit/s", "2s: 9Mbit/s"}, 0)
	if err != nil || late.At(-1) != 5e6 || late.At(0) != 0 || late.At(time.Hour) != 9e6 || late.Best() != 9e6 ||
		even.Best() != 20e6 {
		t.Errorf("%+v, %v", late, err)
	}
	if r := NewRecording(time.Second, []unit.Rate{5 * unit.Gbps}); r.At(0) != maxRecordedRate {
		t.Errorf("5 Gbit/s count as %v", r.At(0))
	}
	for _, bad := range []struct {
		points []string
		loop   time.Duration
	}{{nil, 0}, {[]string{"20Mbit/s"}, 0}, {[]string{"0s: fast"}, 0}, {[]string{"0s: -5"}, 0}, {[]string{"-1s: 5"}, 0},
		{[]string{"1s: 5"}, 0}, {[]string{"0s: 5", "0s: 6"}, 0}, {[]string{"0s: 5", "1s: 6"}, time.Second},
		{[]string{"0s: 20Gbit/s"}, 0}} {
		if _, err := ParseRates(bad.points, bad.loop); err == nil {
			t.Errorf("rates %q were taken", bad.points)
		}
	}
}

// TestRecordedRate: a device with a recording gets its rate, as long as it has data; half of it beside another one; and
// nothing while the rate is 0.
func TestRecordedRate(t *testing.T) {
	for _, rate := range []unit.Rate{150 * unit.Kbps, 2 * unit.Mbps, 37 * unit.Mbps} {
		for _, users := range []int{1, 2} {
			cfg := Config{Cells: []CellConfig{cellOf(100)}, Seed: 1}
			for u := range users {
				cfg.Users = append(cfg.Users, UserConfig{RNTI: 0x4000, Cells: []int{0}, SINR: steady(0),
					Rate: func(n int64) unit.Rate {
						if n%1000 >= 800 {
							return 0
						}
						return rate
					}})
				cfg.Users[u].RNTI += 1
			}
			cfg.Users[users-1].RNTI = 0x4002
			all := []int{0, 1}[:users]
			const subframes = 20_000
			n := New(cfg)
			got, lost := saturate(t, n, subframes, all...)
			expectNear(t, rate.String(), float64(got[0]), 0.8*float64(rate)/8*subframes/1000/float64(users), 0.06)
			if slices.Max(lost) > 0 {
				t.Errorf("%v: %v lost", rate, lost)
			}
		}
	}
}

// TestRecordedDevice: nothing is granted while the rate is 0, and only the first cell serves a device with a recording,
// whose errors do not follow from a signal.
func TestRecordedDevice(t *testing.T) {
	n := New(Config{Cells: []CellConfig{cellOf(50), cellOf(100)}, Seed: 1, Users: []UserConfig{{RNTI: 0x4000,
		Cells: []int{0, 1}, SINR: steady(0), Adapts: true, Rate: func(number int64) unit.Rate {
			if number < 100 {
				return 0
			}
			return 20 * unit.Mbps
		}}}})
	grants := [2]int{}
	var got unit.Bytes
	for number := range 3100 {
		for n.Waiting(0) < 400_000 {
			n.Offer(0, &Item{Size: packet})
		}
		for _, o := range n.Step(nil, func(s cell.Subframe) {
			if number < 100 && len(s.Grants) > 0 {
				t.Fatalf("a grant in subframe %d, without a rate", number)
			}
			grants[s.Cell] += len(s.Grants)
		}) {
			got += o.Item.Size
		}
	}
	if grants[1] > 0 || grants[0] < 2900 {
		t.Errorf("grants in the cells: %v", grants)
	}
	expectNear(t, "bytes in 3 s", float64(got), 3*20e6/8, 0.03)
}
