// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

func TestClassTable(t *testing.T) {
	var primary, server classTable
	primary.replaceGroups(1, []wire.Group{{ID: 3, Weight: 2, Priority: wire.Low},
		{ID: 1, Weight: 1, Limited: true, Subflows: []wire.SubflowID{2, 4}}})
	f := primary.buildFrame()
	if f.Serial != 1 || len(f.Groups) != 2 || f.Groups[0].ID != 1 || f.Groups[1].ID != 3 {
		t.Fatalf("frame %+v, want groups 1 and 3 of serial 1", f)
	}
	server.replaceGroups(f.Serial, f.Groups)
	if !reflect.DeepEqual(primary, server) {
		t.Errorf("the copy is %+v, want %+v", server, primary)
	}
	for _, c := range []struct {
		group            wire.GroupID
		retired, permits bool // permits subflow 3
	}{{0, false, true}, {1, false, false}, {2, true, false}, {3, false, true}, {4, false, false}} {
		class := server.findGroupClass(c.group)
		if server.isGroupRetired(c.group) != c.retired || class.permitsSubflow(3) != c.permits {
			t.Errorf("group %d: retired %v, permits %v", c.group, server.isGroupRetired(c.group), class.permitsSubflow(3))
		}
	}
	live := []*subflow{{id: 1}, {id: 4}}
	if c := server.findGroupClass(1); !c.permitsLiveSubflow(live) || c.permitsLiveSubflow(live[:1]) ||
		server.findGroupClass(9).permitsLiveSubflow(live) {
		t.Error("permitsLive is wrong")
	}
	live[1].silentSince = start
	if server.findGroupClass(1).permitsLiveSubflow(live) {
		t.Error("a silent subflow counts as live")
	}
	server.replaceGroups(2, []wire.Group{{ID: 1, Weight: 1}})
	if !server.isGroupRetired(3) || server.findGroupClass(3) != unknownGroup || !server.limited ||
		!server.findGroupClass(1).equivalentTo(nil) || server.findGroupClass(1).equivalentTo(server.findGroupClass(3)) {
		t.Errorf("after group 3 was left out: %+v", server)
	}
}

// TestClassTableTurns: those of the highest class that wait share by weight, also with one
// that joins late, and none of a lower class has a turn meanwhile.
func TestClassTableTurns(t *testing.T) {
	type waiting struct {
		group wire.GroupID
		sent  uint64
		bytes unit.Bytes
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var table classTable
		weight := []uint8{1, uint8(1 + r.IntN(8)), uint8(1 + r.IntN(8)), 1}
		table.replaceGroups(1, []wire.Group{{ID: 1, Weight: weight[1]}, {ID: 2, Weight: weight[2]},
			{ID: 3, Weight: 1, Priority: wire.Low}})
		rankOf := func(w *waiting) rank { return table.rankInGroup(w.group, &w.sent) }
		var list []*waiting
		all := []*waiting{{group: 1}, {group: 3}, {group: 1}, {group: 2}}
		late := all[len(all)-1]
		run := func(turns int) {
			for range turns {
				w := list[0]
				list = list[1:]
				rank := rankOf(w)
				table.beginRankedTurn(rank)
				n := unit.Bytes(1 + r.IntN(maxSegment))
				rank.countSentBytes(n)
				w.bytes += n
				list = insertByRank(&table, list, w, rankOf)
			}
		}
		for _, w := range all[:3] {
			list = insertByRank(&table, list, w, rankOf)
		}
		run(500)
		if all[1].bytes > 0 || abs(all[0].bytes-all[2].bytes) > 2*maxSegment {
			t.Fatalf("seed %d: %v and %v, and %v of a lower class", seed, all[0].bytes, all[2].bytes, all[1].bytes)
		}
		before := all[0].bytes
		list = insertByRank(&table, list, late, rankOf)
		run(2000)
		fair := (all[0].bytes - before) * unit.Bytes(weight[2]) / unit.Bytes(weight[1])
		if bound := 2 * maxSegment * unit.Bytes(max(weight[1], weight[2])); abs(late.bytes-fair) > bound {
			t.Errorf("seed %d: one that joined late has %v, want %v ± %v", seed, late.bytes, fair, bound)
		}
	}
}

func abs(n unit.Bytes) unit.Bytes { return max(n, -n) }

func TestGroupHistory(t *testing.T) {
	var h groupHistory
	h.confirmChange(7)
	for serial, g := range []wire.GroupID{5, 7, 5} {
		h.leaveGroup(g, uint64(serial+1))
	}
	for _, c := range []struct {
		serial uint64
		left   int
	}{{1, 2}, {2, 1}, {3, 0}} {
		if h.confirmChange(c.serial); len(h.leftGroups) != c.left {
			t.Errorf("after change %d was confirmed: %v", c.serial, h.leftGroups)
		}
	}
}
