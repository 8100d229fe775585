// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/unit"
	"mpbond/internal/cli"
)

// pollInterval is the time between two requests for the primary's status during a download.
const pollInterval = 250 * time.Millisecond

// deviceShare is what one device received during a download.
type deviceShare struct {
	Device  string     `json:"device"`
	Bytes   unit.Bytes `json:"bytes"`
	Share   float64    `json:"share"`    // of all devices, 0 to 1
	RateBps unit.Rate  `json:"rate_bps"` // mean over the time in which it carried something
}

// shareCounter sums up what devices receive, from one status to the next. Subflows may open and
// close meanwhile.
type shareCounter struct {
	last    map[subflowKey]unit.Bytes
	devices map[string]*deviceTotal
}

type subflowKey struct {
	bond    string
	subflow uint32
}

type deviceTotal struct {
	bytes      unit.Bytes
	rate       unit.Rate // now
	first, end time.Time // of carrying something
}

// newShareCounter returns a counter that starts at the counts of s.
func newShareCounter(s api.Status, now time.Time) *shareCounter {
	h := &shareCounter{map[subflowKey]unit.Bytes{}, map[string]*deviceTotal{}}
	h.addStatusBytes(s, now)
	for _, d := range h.devices {
		*d = deviceTotal{}
	}
	return h
}

// addStatusBytes adds a status, received at time now.
func (c *shareCounter) addStatusBytes(s api.Status, now time.Time) {
	for _, d := range c.devices {
		d.rate = 0
	}
	for _, b := range s.Bonds {
		for _, p := range b.Subflows {
			d := c.devices[p.Device]
			if d == nil {
				d = &deviceTotal{}
				c.devices[p.Device] = d
			}
			d.rate += p.RxRate
			key := subflowKey{b.ID, p.ID}
			grown := p.RxBytes - c.last[key]
			c.last[key] = p.RxBytes
			if grown <= 0 {
				continue
			}
			d.bytes += grown
			if d.first.IsZero() {
				d.first = now.Add(-pollInterval)
			}
			d.end = now
		}
	}
}

// listDeviceShares returns the devices, the busiest first.
func (c *shareCounter) listDeviceShares() []deviceShare {
	list := []deviceShare{}
	var total unit.Bytes
	for name, d := range c.devices {
		total += d.bytes
		list = append(list, deviceShare{Device: name, Bytes: d.bytes,
			RateBps: unit.RateOf(d.bytes, d.end.Sub(d.first))})
	}
	for i := range list {
		if total > 0 {
			list[i].Share = float64(list[i].Bytes) / float64(total)
		}
	}
	slices.SortFunc(list, func(a, b deviceShare) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Device, b.Device))
	})
	return list
}

type progressConfig struct {
	client *client.Client
	start  api.Status
	size   unit.Bytes // -1 if unknown
	output io.Writer  // bars appear if it is a terminal
}

// progress counts a download that is written to it, and draws one bar for it and one for each
// device. The notes of the bars are atomic, since the drawing library reads them while others wait
// for it.
type progress struct {
	progressConfig
	cancel context.CancelFunc
	done   sync.WaitGroup
	screen *mpb.Progress
	total  *mpb.Bar

	// Used only by pollPrimary, and by finishProgress after its end.
	shares  *shareCounter
	devices map[string]*deviceBar
}

type deviceBar struct {
	bar  *mpb.Bar
	note atomic.Pointer[string] // rate and share
}

// startProgress draws the bars and polls the primary for the shares of devices until the progress
// is closed.
func startProgress(ctx context.Context, c progressConfig) *progress {
	ctx, cancel := context.WithCancel(ctx)
	begin := time.Now()
	p := &progress{
		progressConfig: c, cancel: cancel,
		screen: cli.NewBars(c.output),
		shares: newShareCounter(c.start, begin), devices: map[string]*deviceBar{},
	}
	p.total = cli.NewBar(p.screen, p.size, "total", unit.Bytes.Decimal, func(n unit.Bytes) string {
		return unit.RateOf(n, time.Since(begin)).String()
	})
	p.updateDeviceBars()
	p.done.Go(func() { p.pollPrimary(ctx) })
	return p
}

// Write counts the bytes. It never fails.
func (p *progress) Write(b []byte) (int, error) {
	p.total.IncrBy(len(b))
	return len(b), nil
}

// resetTotalBar sets the total back to zero.
func (p *progress) resetTotalBar() { p.total.SetCurrent(0) }

// pollPrimary updates the shares of devices each pollInterval until ctx ends.
func (p *progress) pollPrimary(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.updateDeviceShares(ctx)
		}
	}
}

// updateDeviceShares asks the primary once. Without an answer nothing changes.
func (p *progress) updateDeviceShares(ctx context.Context) {
	if s, err := p.client.Status(ctx, false); err == nil {
		p.shares.addStatusBytes(s, time.Now())
		p.updateDeviceBars()
	}
}

// updateDeviceBars updates the bars of the devices.
func (p *progress) updateDeviceBars() {
	for _, d := range p.shares.listDeviceShares() {
		b := p.devices[d.Device]
		if b == nil {
			b = &deviceBar{}
			b.note.Store(new(string))
			b.bar = cli.NewBar(p.screen, p.size, d.Device, unit.Bytes.Decimal,
				func(unit.Bytes) string { return *b.note.Load() })
			p.devices[d.Device] = b
		}
		note := fmt.Sprintf("%v, %.0f %%", p.shares.devices[d.Device].rate, 100*d.Share)
		b.note.Store(&note)
		b.bar.SetCurrent(int64(d.Bytes))
	}
}

// finishProgress ends the bars and returns what each device received. The bars stay on the screen
// if ok.
func (p *progress) finishProgress(ok bool) []deviceShare {
	p.cancel()
	p.done.Wait()
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.updateDeviceShares(last)
	p.total.Abort(!ok)
	for _, d := range p.devices {
		d.bar.Abort(!ok)
	}
	p.screen.Wait()
	return p.shares.listDeviceShares()
}
