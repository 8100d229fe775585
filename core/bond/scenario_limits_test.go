// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// bytes returns the bytes that all apps write.
func (sc *scenario) bytes() (n unit.Bytes) {
	for i := range sc.streams {
		n += unit.Bytes(sc.streams[i].talk[0].Bytes + sc.streams[i].talk[1].Bytes)
	}
	return n
}

// last returns the rate and delay of a hop after all faults: 0 for a black hole.
func (h *hopPlan) last(d int) (unit.Rate, time.Duration) {
	rate, delay := h.rate[d], h.delay[d]
	for _, f := range h.faults {
		if !f.dirs[d] {
			continue
		}
		if f.forever {
			return 0, delay
		}
		if f.after > 0 {
			rate = f.after
		}
		if f.delay > 0 {
			delay = f.delay
		}
	}
	return rate, delay
}

// bound returns when everything must be over, with any scheduler: when nothing changes any more,
// the apps have had their time, and the slowest remaining subflow could have carried all bytes
// several times.
func (sc *scenario) bound() time.Duration {
	var calm, apps, stalls time.Duration
	slowest := unit.Rate(math.MaxInt64)
	for i := range sc.subflows {
		p := &sc.subflows[i]
		calm = max(calm, p.join[0], p.join[1], p.leave[0], p.leave[1])
		works, least := true, unit.Rate(math.MaxInt64)
		for j := range p.hops {
			h := &p.hops[j]
			for _, f := range h.faults {
				calm = max(calm, f.at+f.lasts)
			}
			up, there := h.last(0)
			down, back := h.last(1)
			works = works && up > 0 && down > 0
			rtt := there + back
			least = min(least, up, down, unit.RateOf(h.window[0], rtt), unit.RateOf(h.window[1], rtt))
			lost := h.loss * float64(sc.bytes()/1000+100)
			stalls += time.Duration(lost*float64(rtt+h.wait)) + 10*rtt
		}
		if works && p.leave[0] == 0 {
			slowest = min(slowest, least)
		}
	}
	// With small buffers or windows each packet waits for the writers.
	apps += (sc.lag[0] + sc.lag[1]) * time.Duration(sc.bytes()/1000+100)
	var datagrams unit.Bytes
	for _, f := range sc.flows {
		count := f.count[0] + f.count[1]
		calm = max(calm, f.at+time.Duration(count)*f.every)
		datagrams += unit.Bytes(count * (f.size + 100))
	}
	for _, f := range sc.freezes {
		calm = max(calm, f.at+f.lasts)
	}
	for _, p := range sc.plans {
		calm = max(calm, p.at)
	}
	for _, t := range sc.classChanges {
		calm = max(calm, t.at)
	}
	for i := range sc.streams {
		st := &sc.streams[i]
		calm = max(calm, st.at)
		for d, t := range st.talk {
			apps += t.Delay + t.CloseLate + t.PauseAt + t.Pause + t.ResetAt
			if t.WriteRate > 0 {
				apps += t.WriteRate.Time(unit.Bytes(t.Bytes)) * 2
			}
			other := unit.Bytes(st.talk[1-d].Bytes)
			if t.ReadRate > 0 {
				apps += t.ReadRate.Time(other) * 2
			}
			apps += time.Duration(other/1000+2) * t.Hold
		}
	}
	return calm + apps + 2*stalls + 10*time.Second + 4*slowest.Time(sc.bytes()+datagrams+100*unit.KB)
}

// fluid returns the least time in which the subflows can carry the bytes of a stable scenario:
// subflow i carries nothing before its delay.
func (sc *scenario) fluid() time.Duration {
	d, size := 1, float64(sc.streams[0].talk[1].Bytes)
	if size == 0 {
		d, size = 0, float64(sc.streams[0].talk[0].Bytes)
	}
	type pipe struct{ rate, delay float64 }
	var pipes []pipe
	request := math.Inf(1)
	for i := range sc.subflows {
		p := pipe{rate: math.Inf(1)}
		there := 0.0
		for j := range sc.subflows[i].hops {
			h := &sc.subflows[i].hops[j]
			rtt := h.delay[0] + h.delay[1]
			p.rate = min(p.rate, float64(h.rate[d])/8, float64(h.window[d])/rtt.Seconds())
			p.delay += h.delay[d].Seconds()
			there += h.delay[0].Seconds()
		}
		request = min(request, there)
		pipes = append(pipes, p)
	}
	if d == 0 {
		request = 0
	}
	lo, hi := 0.0, 1e6
	for range 60 {
		mid, carried := (lo+hi)/2, 0.0
		for _, p := range pipes {
			carried += p.rate * max(0, mid-p.delay)
		}
		if carried < size {
			lo = mid
		} else {
			hi = mid
		}
	}
	return time.Duration((hi + request) * 1e9)
}
