// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"errors"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// newTrainBond returns a bond with a direct and a helped subflow that were added at start.
func newTrainBond() *Bond {
	b := New(Config{OpensStreams: true})
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, id == 2, start)
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, MSS: 1448})
	}
	return b
}

// takeTrain lets a subflow send what it has and returns its packets of a train.
func takeTrain(t *testing.T, b *Bond, id wire.SubflowID, now time.Time) (train []wire.Train) {
	t.Helper()
	for {
		b.MarkIdle(id)
		on, segment := b.NextSegment(now, nil)
		if on == 0 {
			return train
		}
		if on != id {
			t.Fatalf("subflow %d sends, want %d", on, id)
		}
		b.BeginSegment(id)
		for len(segment) > 0 {
			n := wire.HeaderLen + int(segment[1])<<16 + int(segment[2])<<8 + int(segment[3])
			if wire.Type(segment[0]) == wire.TypeTrain {
				f, err := wire.ParseTrain(segment[wire.HeaderLen:n])
				if err != nil {
					t.Fatal(err)
				}
				train = append(train, f)
			}
			segment = segment[n:]
		}
	}
}

// TestTrain checks that a new subflow sends a train of whole packets once, unless data comes first,
// all groups exclude it, or a second has passed.
func TestTrain(t *testing.T) {
	b := newTrainBond()
	train := takeTrain(t, b, 2, start.Add(maxTrainDelay))
	if len(train) != trainLength {
		t.Fatalf("%d packets, want %d", len(train), trainLength)
	}
	for i, f := range train {
		if want := b.subflows.subflowByID(2).bytesOfPackets(1); f.Left != trainLength-1-i ||
			f.Padding+wire.HeaderLen+1 != want {
			t.Errorf("packet %d: %+v, want %d bytes in all", i, f, want)
		}
	}
	if again := takeTrain(t, b, 2, start.Add(maxTrainDelay)); again != nil {
		t.Errorf("a second train: %+v", again)
	}
	if late := takeTrain(t, b, 1, start.Add(maxTrainDelay+1)); late != nil {
		t.Errorf("begun after %v: %+v", maxTrainDelay, late)
	}

	b = newTrainBond()
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	s.Write(make([]byte, 100_000))
	if train := takeTrain(t, b, 1, start); train != nil {
		t.Errorf("beside data: %+v", train)
	}

	b = newTrainBond()
	b.SetClassTable([]wire.Group{{ID: 1, Weight: 1, Limited: true, Subflows: []wire.SubflowID{1}}})
	if train := takeTrain(t, b, 2, start); train != nil {
		t.Errorf("over a subflow that all groups exclude: %+v", train)
	}
}

// TestTrainIsMeasured checks the rate that the receiver of a train reports, also if packets were
// lost or came at once, and that the sender uses it.
func TestTrainIsMeasured(t *testing.T) {
	const ms = time.Millisecond
	size := func(f wire.Train) unit.Bytes { return unit.Bytes(wire.HeaderLen + 1 + f.Padding) }
	for _, c := range []struct {
		name string
		at   []time.Duration // of each packet; -1: it never comes
		want unit.Rate       // 0: no report
	}{
		{"each 10 ms", []time.Duration{0, 10, 20, 30, 40, 50, 60, 70}, 8 * 1000 / 10 * unit.Kbps},
		{"the last two after a retransmission", []time.Duration{0, 10, 20, 30, 40, 50, 400, 410}, 800 * unit.Kbps},
		{"at once", []time.Duration{0, 0, 0, 0, 0, 0, 0, 0}, 56 * unit.Mbps},
		{"one is missing", []time.Duration{0, 10, 20, 30, -1, 50, 60, 70}, 0},
		{"the first are missing", []time.Duration{-1, -1, 20, 30, 40, 50, 60, 70}, 800 * unit.Kbps},
		{"the last is missing", []time.Duration{0, 10, 20, 30, 40, 50, 60, -1}, 0},
	} {
		b, far := newTrainBond(), newTrainBond()
		far.SetJoinRTT(2, 70*ms)
		skipTrains(far)
		for i, f := range takeTrain(t, b, 2, start) {
			f.Padding = 1000 - wire.HeaderLen - 1
			if c.at[i] >= 0 {
				if err := far.ReceiveFrame(2, f.Type(), f.AppendPayload(nil), start.Add(c.at[i]*ms)); err != nil {
					t.Fatal(err)
				}
			}
			if size(f) != 1000 {
				t.Fatal(size(f))
			}
		}
		far.MarkIdle(1)
		_, segment := far.NextSegment(start.Add(500*ms), nil)
		var got wire.Rate
		for len(segment) > 0 {
			n := wire.HeaderLen + int(segment[1])<<16 + int(segment[2])<<8 + int(segment[3])
			if err := b.ReceiveFrame(1, wire.Type(segment[0]), segment[wire.HeaderLen:n], start.Add(500*ms)); err != nil {
				t.Fatal(err)
			}
			if wire.Type(segment[0]) == wire.TypeRate {
				got, _ = wire.ParseRate(segment[wire.HeaderLen:n])
			}
			segment = segment[n:]
		}
		if got.Rate != c.want {
			t.Errorf("%s: %v, want %v", c.name, got.Rate, c.want)
		}
		if p := b.subflows.subflowByID(2); c.want > 0 && (got.Subflow != 2 || got.RTT != 70*ms ||
			p.est.EstimateAt(start.Add(500*ms)).Ceiling != c.want) {
			t.Errorf("%s: %+v, estimate %+v", c.name, got, p.est.EstimateAt(start.Add(500*ms)))
		}
	}
}

// TestHostileTrain checks that a train without end or order costs no memory and no report, and that
// a malformed one ends the bond.
func TestHostileTrain(t *testing.T) {
	b := newTrainBond()
	skipTrains(b)
	for i := range 100_000 {
		f := wire.Train{Left: i * 7 % wire.MaxTrain, Padding: i % wire.MaxTrainPadding}
		if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start); err != nil {
			t.Fatal(err)
		}
	}
	for range 10_000 {
		for left := wire.MaxTrain - 1; left >= 0; left-- {
			f := wire.Train{Left: left}
			if err := b.ReceiveFrame(1, f.Type(), f.AppendPayload(nil), start); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(b.control.notices); n > maxNotices {
		t.Errorf("%d reports wait", n)
	}
	for _, f := range []wire.Rate{{Subflow: 9, Rate: unit.Mbps}, {Subflow: 1}} {
		if err := b.ReceiveFrame(2, f.Type(), f.AppendPayload(nil), start); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, payload := range [][]byte{nil, {wire.MaxTrain}, make([]byte, wire.MaxTrainPadding+1)} {
		if err := b.ReceiveFrame(1, wire.TypeTrain, payload, start); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(payload), err)
		}
	}
}

// TestControlAvoidsTrains checks that a control frame does not wait behind a train.
func TestControlAvoidsTrains(t *testing.T) {
	b := newTrainBond()
	takeTrain(t, b, 2, start)
	skipTrains(b)
	b.SetJoinRTT(2, 60*time.Millisecond)
	b.ObserveLocalHop(1, start, estimate.Hop{SRTT: 90 * time.Millisecond, MinRTT: 90 * time.Millisecond, MSS: 1448})
	b.SendBye()
	b.MarkIdle(1)
	b.MarkIdle(2)
	if id, _ := b.NextSegment(start, nil); id != 1 {
		t.Errorf("BYE goes by subflow %d", id)
	}
}
