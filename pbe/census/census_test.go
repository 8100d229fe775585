// SPDX-License-Identifier: Apache-2.0

package census

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
	lab "mpbond/lab/lte"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// grant returns a grant with one block.
func grant(who cell.RNTI, prb int, harq uint8, ndi bool) lte.DCI {
	return lte.DCI{RNTI: who, Format: cell.Format1, Level: 1, PRB: prb, HARQ: harq, N: 1,
		Blocks: [2]cell.Block{{MCS: 10, NDI: ndi, Size: cell.Bits(prb) * 600}}}
}

func sub(number int64, dcis ...lte.DCI) Subframe {
	return Subframe{Number: number, PRB: 50, DCIs: dcis}
}

// modelled runs a cell of 20 MHz with one device that receives 40 Mbit/s, and control users.
func modelled(subframes int, hear func(cell.Subframe)) {
	n := lab.New(lab.Config{Cells: []lab.CellConfig{{PRB: 100, Layers: 2, Control: 0.4}}, Seed: 4,
		Users: []lab.UserConfig{{RNTI: 0x4000, Cells: []int{0}, SINR: func(int64) float64 { return 18 },
			ErrorRate: 2e-6}}})
	source := lab.Source{Rate: 40 * unit.Mbps}
	var out []lab.Delivery
	for i := range subframes {
		source.Offer(n, 0, time.Duration(i)*time.Millisecond)
		out = n.Step(out[:0], hear)
		for _, o := range out {
			source.Recycle(o.Item)
		}
	}
}

// TestModelledCell checks that the census and the control users of lab/lte agree. These follow
// figure 7 of the paper (15.8 in 40 ms on average and at most 28; 1.3 and 7 after the user filter),
// so this does not show that real cells are alike.
func TestModelledCell(t *testing.T) {
	c, w := New(0), cell.NewWindow(0)
	var all, filtered, count float64
	var list []lte.DCI
	modelled(20000, func(s cell.Subframe) {
		x := FromRecording(s, list[:0])
		list = x.DCIs
		c.Add(x)
		w.Add(s, Window)
		if s.Number >= Window-1 {
			f := w.Usage(cell.FilterByPRB)
			all, filtered, count = all+float64(f.AllUsers), filtered+float64(f.Users-1), count+1
		}
	})
	f := c.Close()[0]
	if math.Abs(f.Users.Mean-all/count) > 1e-9 || math.Abs(f.DataUsers.Mean-filtered/count) > 1e-9 ||
		float64(f.Users.Count) != count {
		t.Errorf("%.3f and %.3f users in %d windows; the estimate has %.3f and %.3f in %.0f", f.Users.Mean,
			f.DataUsers.Mean, f.Users.Count, all/count, filtered/count, count)
	}
	t.Logf("%.1f users in 40 ms, %v at most; after the filter %.2f, %v at most; one subframe %.2f, four PRB %.2f, "+
		"both %.2f; %.2f came again, %.2f Mbit/s per PRB", f.Users.Mean, f.Users.Max,
		f.DataUsers.Mean, f.DataUsers.Max, f.Activity.OneSubframe, f.Activity.FourPRB, f.Activity.Both,
		f.Retransmitted, f.PerPRB)
	if f.Users.Mean < 13.4 || f.Users.Mean > 18.2 || f.Users.Max < 24 || f.Users.Max > 36 ||
		math.Abs(f.DataUsers.Mean-1.3) > 0.3 || f.DataUsers.Max > 8 {
		t.Errorf("%+v and %+v", f.Users, f.DataUsers)
	}
	if a := f.Activity; math.Abs(a.OneSubframe-0.9) > 0.02 || math.Abs(a.FourPRB-0.72) > 0.03 || a.Both > a.FourPRB {
		t.Errorf("%+v", a)
	}
	if p := f.Activity.PerPRB.Max; math.Abs(p-1.018) > 0.03 { // 50,912 bits on 50 PRB at 18 dB
		t.Errorf("%.3f Mbit/s per PRB", p)
	}
}

// BenchmarkSubframe measures one subframe of that cell.
func BenchmarkSubframe(b *testing.B) {
	var list []Subframe
	modelled(10000, func(s cell.Subframe) { list = append(list, FromRecording(s, nil)) })
	for name, add := range map[string]func(Subframe){"census": New(0).Add, "users": NewUsers().Add,
		"grid": NewGrid(4000).Add} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				s := list[n%int64(len(list))]
				n++
				s.Number = n
				add(s)
			}
		})
	}
}

// TestFigures checks a cell with known statistics, over a little more than two hours.
func TestFigures(t *testing.T) {
	c := New(hour - 10_000) // the first hour has 10 s
	const all = 40_000
	for i := range int64(all) {
		if i%100 == 99 {
			continue // missed
		}
		if i == 20_000 {
			c.Add(sub(i-1, grant(900, 50, 0, false))) // late
		}
		// 500 always has 20 blocks and every fourth transport block is a retransmission; 600 has 4
		// blocks in one subframe of 1000.
		d := []lte.DCI{grant(500, 20, uint8(i%8), i/8%2 == 0)}
		if i%64 >= 8 && i%64 < 16 {
			d[0].Blocks[0].NDI = (i-8)/8%2 == 0
		}
		if i%1000 == 500 {
			d = append(d, grant(cell.RNTI(1000+i/1000), 4, 0, false))
		}
		d = append(d, lte.DCI{RNTI: 500, Format: cell.Format0, Level: 2, PRB: 5, N: 1},
			lte.DCI{RNTI: 0xFFFF, Format: cell.Format1A, Level: 4, PRB: 6, N: 1})
		c.Add(sub(1000+i, d...))
	}
	c.Add(Subframe{PRB: 25})
	c.Add(Subframe{PRB: 200})
	f := c.Close()[0]
	if c.Invalid != 2 || f.Subframes != all*99/100 || f.Missed != all/100-1 || f.Late != 1 || f.Restarts != 0 {
		t.Errorf("invalid %d; %d received, %d missed, %d late, %d restarts", c.Invalid, f.Subframes, f.Missed, f.Late,
			f.Restarts)
	}
	for _, x := range []struct {
		what            string
		got, want, part float64
	}{
		{"used", f.Used, 26.0 / 50, 0.001}, {"idle", f.Idle, 24.0 / 50, 0.001}, {"uplink", f.Uplink, 0.1, 0},
		{"rate of a block", f.PerPRB, 0.6, 0}, {"again", f.Retransmitted, 1.0 / 4, 0.02},
		{"in 40 ms", f.Users.Mean, 1.04, 0.005}, {"data in 40 ms", f.DataUsers.Mean, 1, 1e-9},
		{"one subframe", f.Activity.OneSubframe, 40.0 / 41, 1e-9}, {"both", f.Activity.Both, 40.0 / 41, 1e-9},
		{"activity", f.Activity.Subframes.Max, all * 99 / 100, 0}, {"span", f.Activity.Span.Max, all - 1, 0},
		{"rate of data users", f.Activity.Rate.Mean, 12 * 0.99, 0.001},
		{"per PRB", f.Activity.PerPRB.P50, 0.6, 0.001},
	} {
		if math.Abs(x.got-x.want) > x.part*x.want+1e-12 {
			t.Errorf("%s: %v, want %v", x.what, x.got, x.want)
		}
	}
	if len(f.Hours) != 2 || f.Hours[0].Number != 0 || f.Hours[1].Number != 1 || f.Hours[0].Users != 11 ||
		f.Hours[1].Users != 31 || f.Hours[0].DataUsers != 1 || f.Hours[1].DataUsers != 1 ||
		f.Hours[0].Subframes != 9900 {
		t.Errorf("%+v", f.Hours)
	}
	want := []Count{{"1A for all", f.Subframes}, {"0", f.Subframes}, {"1", f.Subframes + 40}}
	if len(f.Formats) != 3 || f.Formats[0] != want[0] || f.Formats[1] != want[1] || f.Formats[2] != want[2] {
		t.Errorf("%+v, want %+v", f.Formats, want)
	}
	if len(f.Levels) != 3 || f.Levels[2] != (Count{"4", f.Subframes}) || len(f.MCS) != 1 || f.MCS[0].MCS != 10 {
		t.Errorf("%+v %+v", f.Levels, f.MCS)
	}
	if _, err := json.Marshal(f); err != nil {
		t.Error(err)
	}
	if c.Close() != nil {
		t.Error("a cell after the end")
	}
}

// TestMemory checks that nothing grows without bound.
func TestMemory(t *testing.T) {
	c, u := New(0), NewUsers()
	var s Subframe
	n := int64(0)
	for i := range 100_000 {
		n += int64(1 + i%3*i%7)
		s = sub(n, grant(cell.RNTI(61+i*7%60000), 4, 0, false), grant(cell.RNTI(61+i*13%60000), 9, 1, true))
		c.Add(s)
		u.Add(s)
	}
	w := c.cells[0]
	if len(w.window.users) > 2*Window || len(w.activities.open) > 4*activityTimeout ||
		len(u.window.users) > 2*(userTableMemory+userTableWindow) {
		t.Errorf("%d, %d and %d users are kept", len(w.window.users), len(w.activities.open), len(u.window.users))
	}
	for i := range int64(maxHours + 5) {
		c.Add(sub(n + i*maxGap))
	}
	f := c.Close()[0]
	if len(f.Hours) != maxHours || f.DroppedHours < 4 || f.Hours[1].Number != f.Hours[0].Number+1 {
		t.Errorf("%d hours, %d dropped", len(f.Hours), f.DroppedHours)
	}
}

// TestCountBeginsAgain checks the numbers of a decoder that has reacquired its cell.
func TestCountBeginsAgain(t *testing.T) {
	c := New(0)
	for _, begin := range []int64{50_000, 10_000, 1 << 40} {
		for i := range int64(100) {
			c.Add(sub(begin+i, grant(500, 10, uint8(i%8), i/8%2 == 0)))
		}
	}
	f := c.Close()[0]
	if f.Restarts != 2 || f.Subframes != 300 || f.Missed != 0 || f.Retransmitted != 0 ||
		f.Users.Count != 3*(100-Window+1) || f.Activity.Span.Max != 300 {
		t.Errorf("%+v", f)
	}
}

// TestHalfReceived checks that windows with many missed subframes do not count users.
func TestHalfReceived(t *testing.T) {
	c := New(0)
	for i := range int64(1000) {
		if i < 500 || i%2 == 0 {
			c.Add(sub(i, grant(500, 10, 0, false)))
		}
	}
	// The last of them has 36 subframes.
	if f := c.Close()[0]; f.Users.Count != 500-Window+1+5 || f.Missed != 250-1 {
		t.Errorf("%d windows, %d missed", f.Users.Count, f.Missed)
	}
}
