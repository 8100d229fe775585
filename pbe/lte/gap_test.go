// SPDX-License-Identifier: Apache-2.0

package lte

import "testing"

// TestSkip checks that a cell is followed across skipped samples, with the right numbers, and
// searched for again after more than a second.
func TestSkip(t *testing.T) {
	all := shortSignalOf(77, 120, 25)
	sub := subframeLen(128)
	for _, missing := range []int{1, sub - 1, sub, 7*sub + 100, 31 * sub} {
		r, err := NewReceiver(1_920_000)
		if err != nil {
			t.Fatal(err)
		}
		n, next := 0, 0
		r.OnSubframe = func(s *Subframe) {
			tti := s.SFN*10 + s.Index
			if got := int(s.Start) / sub; len(s.DCIs) > 0 && (tti != got || tti < next) {
				t.Errorf("%d missing: subframe %d is called %d", missing, got, tti)
			}
			if len(s.DCIs) > 0 {
				n++
			}
			next = tti + 1
		}
		cut := 40*sub + 333
		r.Feed(all[:cut])
		r.Skip(int64(missing))
		r.Feed(all[cut+missing:])
		r.Close()
		if want := 120 - missing/sub - 4; n < want {
			t.Errorf("%d missing: %d subframes with messages, want %d", missing, n, want)
		}
	}
	r, err := NewReceiver(1_920_000)
	if err != nil {
		t.Fatal(err)
	}
	r.Skip(0)
	r.Skip(-5)
	r.Feed(all)
	if r.Skip(1_920_001); r.decoder != nil {
		t.Error("followed over more than a second")
	}
	n := 0
	r.OnSubframe = func(s *Subframe) {
		if n++; n == 1 && (s.Start < int64(len(all))+1_920_001 || s.SFN*10+s.Index != 0) {
			t.Errorf("%+v", s)
		}
	}
	r.Feed(all)
	r.Close()
	if n < 119 {
		t.Errorf("%d subframes after that", n)
	}
}
