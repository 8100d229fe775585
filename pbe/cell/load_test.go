// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math"
	"testing"
)

// TestLoad checks that the load needs a second, is then the mean, and follows a change within some
// ten seconds.
func TestLoad(t *testing.T) {
	var l Load
	add := func(n int, grants ...Grant) float64 {
		for range n {
			l.Add(Subframe{PRB: 50, Grants: grants})
		}
		share, _ := l.Share()
		return share
	}
	busy := []Grant{{RNTI: 0x100, PRB: 30, Format: Format1}, {RNTI: 0xFFFF, PRB: 10, Format: Format1A},
		{RNTI: 0x101, PRB: 50, Format: Format0}}
	l.Add(Subframe{}) // without a cell
	if _, known := l.Share(); known {
		t.Error("it is known before anything was seen")
	}
	add(999, busy...)
	if _, known := l.Share(); known {
		t.Error("it is known before a second was seen")
	}
	if got := add(1, busy...); math.Abs(got-.8) > 1e-9 {
		t.Errorf("busy: %v", got)
	}
	if _, known := l.Share(); !known {
		t.Error("it is not known after a second")
	}
	if got := add(1000); math.Abs(got-.4) > 1e-9 {
		t.Errorf("half of it busy: %v", got)
	}
	add(20_000)
	if got := add(30_000, busy...); math.Abs(got-.8*(1-math.Exp(-3))) > .01 {
		t.Errorf("half a minute later: %v", got)
	}
	if got := add(30_000, Grant{RNTI: 0x100, PRB: 50}, Grant{RNTI: 0x101, PRB: 50}); got > 1 {
		t.Errorf("over the whole: %v", got)
	}
}
