// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// TestSetClassDuringDownload: both ends apply each change of the class of a running download from
// then on.
func TestSetClassDuringDownload(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	buildTriangle(n)
	n.ends[0].SetClassTable([]wire.Group{{ID: 1, Priority: wire.High, Weight: 3, Limited: true,
		Subflows: []wire.SubflowID{1}}})
	tr := &transfer{size: int(12 * unit.MB)}
	done := n.carry([]*transfer{tr})
	var sent [][2]uint64 // over each subflow, at each change
	var redundant []unit.Bytes
	note := func() {
		s := n.ends[1]
		sent = append(sent, [2]uint64{s.subflows.subflowByID(1).bytesSent, s.subflows.subflowByID(2).bytesSent})
		redundant = append(redundant, s.Stats().Redundant)
	}
	type state struct {
		mode  wire.Mode
		group wire.GroupID
	}
	steps := []state{{wire.ModeBond, 1}, {wire.ModeRedundant, 0}, {wire.ModeLatency, 1}, {wire.ModeBond, 0}}
	var got []state
	for i, to := range steps {
		n.after(time.Duration(1+i)*time.Second, func() {
			if !n.ends[0].SetClass(tr.id, to.mode, to.group) {
				t.Error("there is no such stream")
			}
		})
		n.after(time.Duration(1+i)*time.Second+500*time.Millisecond, func() { // what was on its way has come
			note()
			s := n.ends[1].streams.all[tr.id]
			got = append(got, state{s.permission.mode, s.permission.group})
		})
		n.after(time.Duration(2+i)*time.Second-ms, note)
	}
	n.run(done)
	for i, to := range steps {
		if got[i] != to {
			t.Errorf("change %d: the server has %+v, want %+v", i, got[i], to)
		}
		first, second := sent[2*i+1][0]-sent[2*i][0], sent[2*i+1][1]-sent[2*i][1]
		copies := redundant[2*i+1] - redundant[2*i]
		t.Logf("%+v: %d and %d bytes, %v of them copies", to, first, second, copies)
		if alone := second < first/10; alone != (to.group == 1) {
			t.Errorf("%+v: %d and %d bytes", to, first, second)
		}
		if (copies > 100*unit.KB) != (to.mode == wire.ModeRedundant) {
			t.Errorf("%+v: %v of copies", to, copies)
		}
	}
}

// TestClassUpdateOutOfOrder: the newest update counts, in any order of arrival. An end that opens
// no streams changes none.
func TestClassUpdateOutOfOrder(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	buildTriangle(n)
	primary, server := n.ends[0], n.ends[1]
	receive := func(b *Bond, f wire.Frame) error {
		return b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), n.now)
	}
	is := func(mode wire.Mode, group wire.GroupID) {
		t.Helper()
		if m, g, ok := server.ClassOf(1); m != mode || g != group || !ok {
			t.Errorf("mode %v, group %d, %v; want %v, %d", m, g, ok, mode, group)
		}
	}
	n.foreign = 1
	n.run(func() bool { return server.subflows.subflowByID(1) != nil && primary.subflows.subflowByID(1) != nil })
	for _, c := range []struct {
		frame wire.Frame
		mode  wire.Mode
		group wire.GroupID
	}{
		{wire.ClassUpdate{Stream: 1, Serial: 2, Mode: wire.ModeLatency, Group: 7}, wire.ModeLatency, 7},
		{wire.Open{Stream: 1, Mode: wire.ModeRedundant, Group: 3, Dest: "a:1"}, wire.ModeLatency, 7},
		{wire.ClassUpdate{Stream: 1, Serial: 1, Mode: wire.ModeRedundant, Group: 3}, wire.ModeLatency, 7},
		{wire.ClassUpdate{Stream: 1, Serial: 3, Mode: wire.ModeBond}, wire.ModeBond, 0},
	} {
		if err := receive(server, c.frame); err != nil {
			t.Fatal(err)
		}
		is(c.mode, c.group)
	}
	if server.SetClass(99, wire.ModeBond, 0) {
		t.Error("a stream that there is not was changed")
	}
	if _, err := primary.OpenStream("a:1"); err != nil {
		t.Fatal(err)
	}
	if err := receive(primary, wire.ClassUpdate{Stream: 1, Serial: 1, Mode: wire.ModeLatency}); !errors.Is(err,
		wire.ErrMalformed) {
		t.Errorf("the server changes a stream: %v", err)
	}
	server.ResetStream(1, wire.CodeClosed, "")
	if _, _, ok := server.ClassOf(1); ok || receive(server,
		wire.ClassUpdate{Stream: 1, Serial: 9, Mode: wire.ModeLatency}) != nil {
		t.Error("one that has ended")
	}
}

// TestClassUpdateKeepsGroups: the class table keeps the groups that a stream has left while the
// stream lasts. The other end may not know of the change yet, and must not take the stream for
// ended.
func TestClassUpdateKeepsGroups(t *testing.T) {
	b := New(Config{OpensStreams: true})
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.SetGroup(5)
	for _, g := range []wire.GroupID{7, 5, 7, 0} {
		b.SetClass(s.ID(), wire.ModeBond, g)
	}
	if used := b.UsedGroups(); !used[5] || !used[7] || !used[0] || len(used) != 3 {
		t.Errorf("%v", used)
	}
	s.Reset(wire.CodeClosed, "")
	if used := b.UsedGroups(); len(used) != 0 {
		t.Errorf("after its end: %v", used)
	}
}

// TestClassUpdateFreesGroups: once the other end has confirmed a change, the class table no longer
// needs the groups that the stream has left, however often it changes.
func TestClassUpdateFreesGroups(t *testing.T) {
	b := New(Config{OpensStreams: true})
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.SetGroup(1)
	add := func(id wire.SubflowID) {
		b.AddSubflow(id, false, start)
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 100_000, MSS: 1448})
	}
	send := func(id wire.SubflowID) uint64 {
		t.Helper()
		b.MarkIdle(id)
		if on, _ := b.NextSegment(start, nil); on != id {
			t.Fatalf("a segment for subflow %d", on)
		}
		b.BeginSegment(id)
		return b.subflows.subflowByID(id).bytesSent
	}
	knows := func(id wire.SubflowID, sent uint64) {
		t.Helper()
		f := wire.Ack{Subflows: []wire.SubflowAck{{Subflow: id, Received: sent}}}
		if err := b.ReceiveFrame(id, wire.TypeAck, f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want ...wire.GroupID) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(b.UsedGroups())); !slices.Equal(got, want) {
			t.Fatalf("groups %v, want %v", got, want)
		}
	}
	add(1)
	sent := send(1) // OPEN
	for g := wire.GroupID(2); g <= 1000; g++ {
		b.SetClass(s.ID(), wire.ModeBond, g)
		newer := send(1)
		if g > 2 {
			is(g-2, g-1, g)
		}
		knows(1, sent) // of the change before
		is(g-1, g)
		sent = newer
	}
	b.SetClass(s.ID(), wire.ModeLatency, 1000) // it stays where it is
	is(999, 1000)
	b.SetClass(s.ID(), wire.ModeBond, 999) // and comes back
	sent = send(1)
	b.SetClass(s.ID(), wire.ModeBond, 1001)
	send(1)
	knows(1, sent)
	is(999, 1001)
	b.RemoveSubflow(1, start) // with the last change in flight
	is(999, 1001)
	add(2)
	knows(2, send(2))
	is(1001)
}

// TestClassUpdatesAreNotKept: a server has no use for the groups that its streams have left,
// and a primary that makes ever new ones takes no memory there.
func TestClassUpdatesAreNotKept(t *testing.T) {
	const streams, times = 100, 1000
	b := New(Config{})
	b.AddSubflow(1, false, start)
	for serial := uint64(1); serial <= times; serial++ {
		for id := wire.StreamID(1); id <= streams; id++ {
			f := wire.ClassUpdate{Stream: id, Serial: serial, Group: wire.GroupID(serial*streams + uint64(id))}
			if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(b.UsedGroups()); n != streams {
		t.Errorf("%d streams are of %d groups", streams, n)
	}
}

// TestRetiredGroup: a frame that names a retired group was overtaken by later ones and changes
// nothing. No stream waits for a class table that will not arrive.
func TestRetiredGroup(t *testing.T) {
	b, receive := newAlone(t)
	receive(wire.ClassTable{Serial: 1, Groups: []wire.Group{{ID: 1, Weight: 1}, {ID: 2, Weight: 1}}})
	receive(wire.Open{Stream: 1, Group: 2, Dest: "a:1"})
	receive(wire.Open{Stream: 3, Group: 2, Dest: "a:1"})
	receive(wire.ClassTable{Serial: 2, Groups: []wire.Group{{ID: 2, Weight: 1}}})
	receive(wire.ClassUpdate{Stream: 1, Serial: 1, Mode: wire.ModeLatency, Group: 1})
	if m, g, ok := b.ClassOf(1); m != wire.ModeBond || g != 2 || !ok {
		t.Errorf("CLASS_UPDATE: mode %v, group %d, %v", m, g, ok)
	}
	receive(wire.ClassUpdate{Stream: 1, Serial: 2, Mode: wire.ModeLatency, Group: 3}) // a later class table names it
	if m, g, ok := b.ClassOf(1); m != wire.ModeLatency || g != 3 || !ok {
		t.Errorf("the next CLASS_UPDATE: mode %v, group %d, %v", m, g, ok)
	}
	open := wire.Open{Stream: 2, Group: 1, Dest: "a:1"}
	receive(open)
	receive(open)
	var ids []wire.StreamID
	for s := b.AcceptStream(); s != nil; s = b.AcceptStream() {
		ids = append(ids, s.ID())
	}
	if !slices.Equal(ids, []wire.StreamID{1, 3}) || b.streams.all[2] != nil {
		t.Errorf("OPEN: accepted are %v", ids)
	}
}
