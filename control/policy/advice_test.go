// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestAdvise checks that advice is what a stream would get, and from which size on it changes.
func TestAdvise(t *testing.T) {
	list := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi), newOwnSubflow(25*unit.Mbps, wire.RadioCellular)}
	before := slices.Clone(list)
	for _, x := range UsualTransfers() {
		a := Advise(list, x)
		if !slices.Equal(list, before) {
			t.Fatal("the subflows were changed")
		}
		chosen := func(n unit.Bytes) uint64 {
			some := slices.Clone(list)
			ChooseSubflows(some, x.demandForSize(n))
			return allowedSet(some)
		}
		if a.Alternatives[0].Subflows != chosen(x.Size) || a.Alternatives[0].WhyNot != "" || a.Reason == "" {
			t.Errorf("%s: %+v", x.Name, a)
		}
		if n := a.OtherFrom; n > 0 && (chosen(n) == chosen(x.Size) || chosen(n*9/10) != chosen(x.Size) && n*9/10 > x.Size) {
			t.Errorf("%s: the choice is said to change at %d bytes", x.Name, n)
		}
	}
	message := Transfer{Name: "message", Size: unit.KB, Up: true}
	if a := Advise(list[:1], message); len(a.Alternatives) != 1 || a.OtherFrom != 0 {
		t.Errorf("one subflow: %+v", a)
	}
	if a := Advise(nil, message); len(a.Alternatives) != 0 {
		t.Errorf("no subflow: %+v", a)
	}
}
