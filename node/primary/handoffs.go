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
	"mpbond/control/facts"
	"mpbond/core/bond"
	"mpbond/core/trace"
	"mpbond/link/estimate"
)

// handoffWatch forecasts handoffs of this device's mobile links between cells from what their modems
// report, and counts how the forecasts came out. Each handoff is recorded. Safe for concurrent use. mu
// is held while events are recorded.
type handoffWatch struct {
	log *slog.Logger
	rec *trace.Recorder

	mu    sync.Mutex
	links map[string]*watchedLink // by interface
}

// watchedLink is what is known of a link. handoffWatch.mu must be held.
type watchedLink struct {
	forecast estimate.HandoffForecast
	last     estimate.CellSignal
	handoffs []pastHandoff // within keptHandoffs, oldest first
	alarm    time.Time     // when the probability was last alarming; zero: not since the last handoff
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

// takeFacts takes what the facts say about the cells of local interfaces. It returns the hazards of
// those with a new report.
func (w *handoffWatch) takeFacts(f facts.Facts, interfaces []string) map[string]bond.Hazard {
	w.mu.Lock()
	defer w.mu.Unlock()
	hazards := map[string]bond.Hazard{}
	for _, iface := range interfaces {
		s := f.CellOf(iface)
		l := w.links[iface]
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
	before := l.forecast.ProbabilityAt(s.At)
	handoff := l.forecast.AddSignal(s)
	l.last.At, l.last.Cell = s.At, cmp.Or(s.Cell, l.last.Cell)
	p := l.forecast.ProbabilityAt(s.At)
	switch {
	case handoff:
		foreseen := !l.alarm.IsZero()
		l.handoffs = append(l.handoffs, pastHandoff{s.At, foreseen})
		l.alarm = time.Time{}
		text := fmt.Sprintf("its probability was %.2f", before)
		w.log.Debug("handoff", "interface", iface, "cell", s.Cell, "probability", before)
		w.rec.Add(trace.Event{Kind: trace.Handoff, Device: iface, Text: s.Cell, Reason: text})
	case p >= alarmProbability:
		l.alarm = s.At
	case !l.alarm.IsZero() && s.At.Sub(l.alarm) > estimate.HandoffHorizon:
		l.falseAlarms = append(l.falseAlarms, s.At)
		l.alarm = time.Time{}
	}
	l.forgetOld(s.At)
	return bond.Hazard{Probability: p, Until: s.At.Add(estimate.HandoffHorizon), HandedOff: handoff}
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
