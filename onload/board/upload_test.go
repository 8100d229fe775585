// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/simulate"
)

// photoCase has photos to send over a home line and two phones.
func photoCase(seed, n int, buffer unit.Bytes) (c simulate.Case, bound time.Duration) {
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	c.Upload = true
	all, sum := unit.Rate(0), unit.Bytes(0)
	for _, kbps := range []float64{uniform(r, 600, 3000), uniform(r, 600, 2500), uniform(r, 600, 2500)} {
		rate := unit.Rate(kbps * 1000)
		c.Paths = append(c.Paths,
			simulate.Path{RTT: milliseconds(r, 40, 100), Rates: []simulate.Step{{Rate: rate}}, Buffer: buffer})
		all += rate
	}
	for i := range n {
		size := unit.Bytes(max(280_000, 2.5e6+0.74e6*r.NormFloat64()))
		c.Items, sum = append(c.Items, board.Item{Object: i, To: size, NoCopies: true}), sum+size
	}
	return c, time.Duration(float64(sum) * 8 / float64(all) * 1e9)
}

// TestSendsBehindBuffers checks that bytes in buffers neither make a path look fast, nor one slow
// that has handed over all its bytes. With rates of handed-over bytes the transfer took 1.24 times
// as long.
func TestSendsBehindBuffers(t *testing.T) {
	for _, x := range []struct {
		photos int
		most   float64 // relative to the bound of a fluid
	}{{10, 1.063}, {30, 1.015}} {
		sum, least := map[unit.Bytes]time.Duration{}, time.Duration(0)
		for seed := range *seeds {
			for _, buffer := range []unit.Bytes{0, 300_000, 1_000_000} {
				c, bound := photoCase(seed, x.photos, buffer)
				sum[buffer] += runCase(t, c, "auto").Took
				least += bound / 3
			}
		}
		for buffer, took := range sum {
			if times := took.Seconds() / least.Seconds(); times > x.most {
				t.Errorf("%d photos behind %v of buffers: %.3f times the bound", x.photos, buffer, times)
			}
		}
		t.Log(x.photos, least, sum)
	}
}

// TestSendsFade checks that a fading path keeps no item; its file is sent again.
func TestSendsFade(t *testing.T) {
	steps := func(mbps ...float64) (list []simulate.Step) {
		for i, r := range mbps {
			list = append(list, simulate.Step{At: time.Duration(i) * 7 * time.Second, Rate: unit.Rate(r * 1e6)})
		}
		return list
	}
	for _, buffer := range []unit.Bytes{0, 300_000} {
		c := simulate.Case{Upload: true, Paths: []simulate.Path{
			{RTT: 40 * time.Millisecond, Rates: steps(1), Buffer: buffer},
			{RTT: 100 * time.Millisecond, Rates: steps(2, 0.02), Buffer: buffer}}}
		for i := range 5 {
			c.Items = append(c.Items, board.Item{Object: i, To: 1_400_000, NoCopies: true})
		}
		took := runCase(t, c, "auto").Took
		c.Paths = c.Paths[:1]
		if alone := runCase(t, c, "auto").Took; took > alone {
			t.Errorf("buffer %v: %v with a fading phone, %v without", buffer, took, alone)
		}
	}
}

// TestSendsToIdle checks that an idle path that would be faster gets the file, and that a path
// without measurements is tried.
func TestSendsToIdle(t *testing.T) {
	list := makeItems(4, 1_000_000, false)
	for i := range list {
		list[i].NoCopies = true
	}
	list[2].To = 3_000_000
	b := newBoard(t, "auto", 3)
	b.SetUpload()
	b.AddItems(list...)
	b.SetDown(2, at(0))
	first := drainOrders(b, at(0))
	expectOrders(t, first, "start p0 2:0-3000000, start p1 0:0-1000000") // the largest first
	for _, o := range first {
		b.ReportProgress(o.Job.ID, 0, at(0))
	}
	b.Finish(first[1].Job.ID, at(1))    // 8 Mbit/s
	b.Finish(first[0].Job.ID, at(3.75)) // 6.4
	b.AddItems(board.Item{Object: 9, To: 3_000_000, NoCopies: true})
	b.SetUp(2)
	expectOrders(t, drainOrders(b, at(3.75)), "start p0 3:0-1000000, start p1 9:0-3000000, start p2 1:0-1000000")
}

// TestExcludedFastestGetsNoItem checks that an item is not reserved for the fastest path if that is excluded.
func TestExcludedFastestGetsNoItem(t *testing.T) {
	list := makeItems(3, 1_000_000, false)
	for i := range list {
		list[i].NoCopies = true
	}
	b := newBoard(t, "auto", 2, list...)
	b.SetUpload()
	first := drainOrders(b, at(0))
	for _, o := range first {
		b.ReportProgress(o.Job.ID, 0, at(0))
	}
	b.Finish(first[1].Job.ID, at(1))
	b.Finish(first[0].Job.ID, at(10))
	b.Exclude(1, 2, at(10))
	b.AddItems(board.Item{Object: 3, To: 2_000_000, NoCopies: true})
	expectOrders(t, drainOrders(b, at(10)), "start p0 2:0-1000000, start p1 3:0-2000000")
}
