// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/lab/vary"
)

// Stall is a time in which a link of a train carries nothing while the other one works, and how a download
// noticed it.
type Stall struct {
	Path      int
	From, End time.Duration // since the download began
	// Noticed is how long after From the sender called the subflow silent; negative: it did not.
	Noticed time.Duration
	// Back is how long after End bytes that were sent over the subflow after End were acknowledged. If none were,
	// it is the time until the next stall of the link or the end, and NotBack is set.
	Back    time.Duration
	NotBack bool
	// Gap is the longest time without a new byte at the app that overlaps the stall or the second after it.
	Gap time.Duration
}

// StallReport lists the stalls that a download met.
type StallReport struct {
	Stalls      []Stall
	FalseAlarms int           // how often a subflow was called silent though its link did not stall
	Took        time.Duration // of the download
}

const (
	// LeastStall is the length from which on a stall should be noticed.
	LeastStall = 300 * time.Millisecond
	// stallMargin is how long after a stall what follows is attributed to it.
	stallMargin = time.Second
	// bulkShare is the size of the download relative to what the links carry on average.
	bulkShare = 0.8
)

// stallsOf returns when a link carries nothing, in order. Times begin with the first object.
func stallsOf(l Link) (all []Outage) {
	for i, r := range l.Rates {
		if r.Rate == 0 && i+1 < len(l.Rates) {
			all = append(all, Outage{r.At, l.Rates[i+1].At})
		}
	}
	all = append(all, l.Outages...)
	slices.SortFunc(all, func(a, b Outage) int { return cmp.Compare(a.From, b.From) })
	n := 0
	for _, o := range all { // join those that touch
		if n > 0 && o.From <= all[n-1].To {
			all[n-1].To = max(all[n-1].To, o.To)
			continue
		}
		all[n] = o
		n++
	}
	all = all[:n]
	for i := range all {
		all[i].From, all[i].To = all[i].From-startAt, all[i].To-startAt
	}
	return all
}

// sentUntil says how many bytes a subflow had been given, or had acknowledged, at a time.
type sentUntil struct {
	at    time.Duration
	bytes uint64
}

// watchedPath records what the sender of a download learnt about a subflow.
type watchedPath struct {
	silent       []time.Duration
	given, acked []sentUntil
	stalls       []Outage
}

// bytesAt returns the bytes of the last entry up to a time.
func bytesAt(list []sentUntil, at time.Duration) uint64 {
	i, _ := slices.BinarySearchFunc(list, at, func(s sentUntil, at time.Duration) int {
		if s.at <= at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 0
	}
	return list[i-1].bytes
}

// isBusyAt reports whether bytes were in flight.
func (w *watchedPath) isBusyAt(at time.Duration) bool {
	return bytesAt(w.given, at) > bytesAt(w.acked, at)
}

// backAfter returns how long after a time bytes that were given to the subflow since then were acknowledged.
// ok is false if none were before limit.
func (w *watchedPath) backAfter(at, limit time.Duration) (took time.Duration, ok bool) {
	first := slices.IndexFunc(w.given, func(s sentUntil) bool { return s.at >= at })
	if first < 0 {
		return 0, false
	}
	i := slices.IndexFunc(w.acked, func(s sentUntil) bool { return s.at >= at && s.bytes >= w.given[first].bytes })
	if i < 0 || w.acked[i].at >= limit {
		return 0, false
	}
	return w.acked[i].at - at, true
}

// DownloadOverStalls downloads for most of a train's journey, with or without forecasts of handoffs, and
// reports what was noticed of the stalls.
func (t *Train) DownloadOverStalls(scheduler string, hints []Hint) (rep StallReport, failed string) {
	var paths [vary.Carriers]watchedPath
	size := unit.Bytes(0)
	for c, p := range t.Network.Paths {
		paths[c].stalls = stallsOf(p.Hops[0].Down)
		down := t.Rides[c].Down
		length := time.Duration(len(down.Rates)) * down.Step
		size += unit.Bytes(bulkShare * float64(down.Mean(vary.MaxLength).Bytes(length)))
	}
	var arrivals []time.Duration
	w := &Workload{Size: size, Streams: 1, Objects: 1}
	r := RunBond(t.Network, scheduler, w, Options{Control: ChosenByHop, Hints: hints,
		arrived: func(at time.Duration, _ uint64) { arrivals = append(arrivals, at-startAt) },
		Trace: func(e trace.Event) {
			if e.Who != "server" || e.Subflow == 0 {
				return
			}
			p, at := &paths[e.Subflow-1], time.Unix(0, e.T).Sub(epoch)-startAt
			switch e.Kind {
			case trace.SubflowSilent:
				p.silent = append(p.silent, at)
			case trace.Segment:
				p.given = append(p.given, sentUntil{at, e.Count})
			case trace.Ack:
				p.acked = append(p.acked, sentUntil{at, e.Offset})
			}
		}})
	if r.Err != "" {
		return rep, r.Err
	}
	rep.Took = r.Ended
	for c := range paths {
		rep.addPath(c, &paths[c], paths[1-c].stalls, arrivals)
	}
	return rep, ""
}

// addPath adds the stalls of a path. Those are left out that nothing could notice, since the link had no bytes
// in flight or the other link stalled too, and those that follow another one, the beginning or the end at once.
func (rep *StallReport) addPath(path int, w *watchedPath, others []Outage, arrivals []time.Duration) {
	for _, at := range w.silent {
		if !slices.ContainsFunc(w.stalls, func(o Outage) bool { return at >= o.From && at < o.To+stallMargin }) {
			rep.FalseAlarms++
		}
	}
	before := time.Duration(0)
	for i, o := range w.stalls {
		next := rep.Took
		if i+1 < len(w.stalls) {
			next = min(next, w.stalls[i+1].From)
		}
		isApart := o.From >= before+stallMargin && next >= o.To+stallMargin
		before = o.To
		if o.To-o.From < LeastStall || !isApart || !w.isBusyAt(o.From) ||
			slices.ContainsFunc(others, func(x Outage) bool { return x.From < o.To+stallMargin && x.To > o.From-stallMargin }) {
			continue
		}
		s := Stall{Path: path, From: o.From, End: o.To, Noticed: firstWithin(w.silent, o.From, o.To+stallMargin),
			Gap: longestGap(arrivals, o.From, o.To+stallMargin)}
		back, ok := w.backAfter(o.To, next)
		if s.Back, s.NotBack = back, !ok; !ok {
			s.Back = next - o.To
		}
		rep.Stalls = append(rep.Stalls, s)
	}
}

// firstWithin returns how long after from the first of some times is, in order, that lies before to; -1 if
// none does.
func firstWithin(times []time.Duration, from, to time.Duration) time.Duration {
	i, _ := slices.BinarySearch(times, from)
	if i == len(times) || times[i] >= to {
		return -1
	}
	return times[i] - from
}

// longestGap returns the longest time between two of some times, in order, that overlaps (from, to).
func longestGap(times []time.Duration, from, to time.Duration) (longest time.Duration) {
	i, _ := slices.BinarySearchFunc(times, from, func(at, from time.Duration) int {
		if at <= from {
			return -1
		}
		return 1
	})
	last := from
	if i > 0 {
		last = times[i-1]
	}
	for ; i < len(times) && last < to; i++ {
		longest, last = max(longest, times[i]-last), times[i]
	}
	return longest
}
