// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/control/device"
	"mpbond/control/facts"
	"mpbond/core/bond"
	"mpbond/core/trace"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// handoffWatch forecasts handoffs of this device's mobile links between cells from what their modems
// report, and counts how the forecasts came out. Each handoff is recorded. Safe for concurrent use. mu
// is held while events are recorded.
type handoffWatch struct {
	isMobile func(iface string) bool
	log      *slog.Logger
	rec      *trace.Recorder

	mu    sync.Mutex
	links map[string]*watchedLink // by interface
}

// watchedLink is the state of one link. handoffWatch.mu must be held.
type watchedLink struct {
	forecast estimate.HandoffForecast
	last     estimate.CellSignal
	isNamed  bool          // the last report named its cell
	handoffs []pastHandoff // within handoffMemory, oldest first
	alarm    time.Time     // when the probability was last alarming; zero: the outcome is known, or will not be
	// falseAlarms holds when alarms ended without a handoff.
	falseAlarms []time.Time
}

// pastHandoff is a handoff, and whether it was foreseen.
type pastHandoff struct {
	at       time.Time
	foreseen bool
}

const (
	// alarmProbability is the probability from which on a handoff counts as foreseen.
	alarmProbability = 0.3
	// handoffMemory is how long handoffs are listed, maxHandoffs how many of a link at most: a modem that
	// reports another cell each time fills no memory.
	handoffMemory = time.Hour
	maxHandoffs   = 1000
)

// internetLink returns which of the local interfaces with subflows a report about the link to the Internet,
// whatever its name, is about: the only one of a modem, or the only one; "" if that is unclear.
func (w *handoffWatch) internetLink(f facts.Facts, own []string) string {
	mobile := slices.DeleteFunc(slices.Clone(own), func(iface string) bool { return !w.isMobileLink(f, iface) })
	switch {
	case len(mobile) == 1:
		return mobile[0]
	case len(own) == 1:
		return own[0]
	}
	return ""
}

// isMobileLink reports whether an interface is that of a modem, by its name or the facts.
func (w *handoffWatch) isMobileLink(f facts.Facts, iface string) bool {
	return w.isMobile(iface) || f.Links[iface].Radio == wire.RadioCellular
}

// hasMobileLink reports whether one of the interfaces is that of a modem.
func (w *handoffWatch) hasMobileLink(f facts.Facts, own []string) bool {
	return slices.ContainsFunc(own, func(iface string) bool { return w.isMobileLink(f, iface) })
}

// takeFacts takes what the facts say about mobile cells. It returns the hazards of interfaces with a new
// report. own are the local interfaces with subflows.
func (w *handoffWatch) takeFacts(f facts.Facts, own []string, now time.Time) map[string]bond.Hazard {
	w.mu.Lock()
	defer w.mu.Unlock()
	reports := map[string]estimate.CellSignal{}
	if iface := w.internetLink(f, own); iface != "" {
		reports[iface] = f.Links[""].Cell
	}
	for name, l := range f.Links {
		if name != "" && !l.Cell.At.IsZero() {
			reports[name] = l.Cell
		}
	}
	hazards := map[string]bond.Hazard{}
	for iface, s := range reports {
		l := w.links[iface]
		if l != nil && l.last.At.After(now) {
			l = nil // the clock was set back
		}
		if s.At.IsZero() || l != nil && !s.At.After(l.last.At) {
			continue
		}
		if l == nil {
			l = &watchedLink{}
			w.links[iface] = l
		}
		hazards[iface] = w.takeSignal(iface, l, s)
	}
	return hazards
}

// takeSignal takes a report about a link. mu must be held.
func (w *handoffWatch) takeSignal(iface string, l *watchedLink, s estimate.CellSignal) bond.Hazard {
	before, gap := l.forecast.ProbabilityAt(s.At), s.At.Sub(l.last.At)
	if s.Cell == "" || !l.isNamed || gap > estimate.SignalLifetime {
		l.alarm = time.Time{} // its outcome is unknown
	}
	handoff := l.forecast.AddSignal(s)
	l.last.At, l.last.Cell, l.isNamed = s.At, cmp.Or(s.Cell, l.last.Cell), s.Cell != ""
	p := l.forecast.ProbabilityAt(s.At)
	limit := estimate.HandoffHorizon
	if handoff {
		limit = estimate.SignalLifetime // it was between two reports
	}
	inTime := s.At.Sub(l.alarm) <= limit
	if !l.alarm.IsZero() && !inTime {
		l.falseAlarms = append(l.falseAlarms, s.At)
	}
	if handoff {
		l.handoffs = append(l.handoffs, pastHandoff{s.At, inTime})
		reason := "no forecast"
		if before > 0 {
			reason = fmt.Sprintf("forecast with %.0f %%", 100*before)
		}
		w.log.Debug("handoff", "interface", iface, "cell", s.Cell, "probability", before)
		w.rec.Add(trace.Event{Kind: trace.Handoff, Device: iface, Text: s.Cell, Reason: reason})
	}
	if handoff || !inTime {
		l.alarm = time.Time{}
	}
	if p >= alarmProbability {
		l.alarm = s.At
	}
	l.forgetOld(s.At)
	return bond.Hazard{Probability: p, Until: s.At.Add(estimate.SignalLifetime),
		HandedOff: handoff && gap <= estimate.SignalLifetime}
}

// forgetOld forgets what is too old, or too much.
func (l *watchedLink) forgetOld(now time.Time) {
	isOld := func(at time.Time) bool { return now.Sub(at) > handoffMemory }
	l.handoffs = slices.DeleteFunc(l.handoffs, func(h pastHandoff) bool { return isOld(h.at) })
	l.falseAlarms = slices.DeleteFunc(l.falseAlarms, isOld)
	l.handoffs = l.handoffs[max(0, len(l.handoffs)-maxHandoffs):]
	l.falseAlarms = l.falseAlarms[max(0, len(l.falseAlarms)-maxHandoffs):]
}

// listHandoffs describes the links with reports of the last hour.
func (w *handoffWatch) listHandoffs(now time.Time) (all api.Handoffs) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all.Links = []api.LinkHandoffs{}
	for iface, l := range w.links {
		if now.Sub(l.last.At) > handoffMemory {
			continue
		}
		l.forgetOld(now)
		x := api.LinkHandoffs{Interface: iface, Cell: l.last.Cell, Probability: l.forecast.ProbabilityAt(now),
			Evidence: l.forecast.ExplainAt(now), Count: len(l.handoffs), FalseAlarms: len(l.falseAlarms)}
		for _, h := range l.handoffs {
			if x.Last = h.at; h.foreseen {
				x.Foreseen++
			}
		}
		all.Links = append(all.Links, x)
	}
	slices.SortFunc(all.Links, func(a, b api.LinkHandoffs) int { return cmp.Compare(a.Interface, b.Interface) })
	return all
}

// isMobileInterface reports whether a local interface is that of a modem.
func isMobileInterface(iface string) bool { return device.RadioOf(iface) == wire.RadioCellular }
