// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"
	"time"
)

// CellSignal is one report of a modem about the mobile cell that serves a link.
type CellSignal struct {
	At time.Time // when the report came, by this device's clock
	// RSRP is the reference signal received power (3GPP TS 36.214 section 5.1.1) of the serving cell,
	// Neighbour that of the strongest other cell, in dBm. Values out of their range, such as 0, are
	// unknown.
	RSRP, Neighbour float64
	Cell            string  // identity of the serving cell; "": unknown
	SpeedKmh        float64 // of the device; 0: unknown, or it stands
}

// Range of RSRP that counts: that of 3GPP TS 36.133 section 9.1.4, with room above for modems that
// report more.
const minRSRP, maxRSRP = -156, -20

// IsRSRP reports whether v is a power in dBm that a modem can measure.
func IsRSRP(v float64) bool { return v >= minRSRP && v <= maxRSRP } // NaN is not

const (
	// HandoffHorizon is how far a forecast looks ahead. Modems report about once a second.
	HandoffHorizon = 2 * time.Second
	// SignalLifetime is how long a report counts. A longer gap between two reports is no outcome.
	SignalLifetime = 2500 * time.Millisecond
	// maxSinceHandoff bounds the time since the last handoff that counts.
	maxSinceHandoff = time.Minute
	// usualRSRP is in dBm, maxSpeed in km/h.
	usualRSRP, maxSpeed = -100.0, 1000.0
	// calibrationStep is how far one outcome moves the logarithm of the odds: 100 forecasts of 0.3, of
	// which none comes true, move it by about 1. maxCalibration bounds all of them together.
	calibrationStep, maxCalibration = 0.05, 3.0
)

// handoffModel is a logistic model of the odds of a handoff within HandoffHorizon.
type handoffModel struct {
	bias   float64 // logarithm of the odds where the features are 0
	level  float64 // for each dB of level
	recent float64 // for each factor of e in the time since the last handoff
	speed  float64 // for each 100 km/h
}

// The models were fitted by logistic regression to 160 journeys of 5 minutes on trains and in cars
// (lab/vary, seeds 1 to 80), with two links each. On 80 others the area under the curve is 0.89 on
// trains and 0.92 in cars, without a neighbour 0.82 and 0.80. The slope of the signal added nothing.
var (
	// The level is by how much the serving cell is stronger than the strongest other one.
	withNeighbour = handoffModel{bias: -1.28, level: -0.168, recent: 0.155, speed: 0.294}
	// The level is by how much it is stronger than usualRSRP.
	withoutNeighbour = handoffModel{bias: -3.13, level: -0.112, recent: 0.165, speed: 0.414}
)

// HandoffForecast forecasts handoffs of one link from the reports of its modem. It corrects itself by
// what happened. The zero value has no reports. Not safe for concurrent use.
type HandoffForecast struct {
	last        CellSignal // the newest report
	changedAt   time.Time  // when the cell was last seen to change
	began       time.Time  // the first report
	correction  float64    // of the logarithm of the odds
	open        []openForecast
	probability float64 // from the newest report
}

// openForecast is a forecast whose outcome is not known yet.
type openForecast struct {
	at          time.Time
	probability float64
	handedOff   bool // within the horizon
}

// AddSignal takes a report. It reports whether the link has changed to another cell since the last
// one. It ignores a report that is not newer than the last one. Without cells it forecasts, but does not
// correct itself.
func (f *HandoffForecast) AddSignal(s CellSignal) (handoff bool) {
	if !s.At.After(f.last.At) {
		return false
	}
	if f.began.IsZero() || s.At.Sub(f.last.At) > maxSinceHandoff {
		*f = HandoffForecast{began: s.At, correction: f.correction}
	}
	named := s.Cell != "" && f.last.Cell != ""
	handoff = named && s.Cell != f.last.Cell
	if !named || s.At.Sub(f.last.At) > SignalLifetime {
		f.open = f.open[:0] // whether there was a handoff in time is unknown
	}
	if s.Cell == "" {
		s.Cell = f.last.Cell
	}
	if f.last = s; handoff {
		f.changedAt = s.At
	}
	f.learnOutcomes(s.At, handoff)
	f.probability = 0
	if IsRSRP(s.RSRP) {
		f.probability = 1 / (1 + math.Exp(-f.logOdds()))
		f.open = append(f.open, openForecast{at: s.At, probability: f.probability})
	}
	return handoff
}

// logOdds returns the logarithm of the odds by the newest report, which has a signal.
func (f *HandoffForecast) logOdds() float64 {
	m, level := withoutNeighbour, f.last.RSRP-usualRSRP
	if IsRSRP(f.last.Neighbour) {
		m, level = withNeighbour, f.last.RSRP-f.last.Neighbour
	}
	since := f.began
	if !f.changedAt.IsZero() {
		since = f.changedAt
	}
	recent := math.Log1p(min(f.last.At.Sub(since), maxSinceHandoff).Seconds())
	speed := 0.0
	if v := f.last.SpeedKmh; v > 0 && v <= maxSpeed {
		speed = v / 100
	}
	return m.bias + m.level*level + m.recent*recent + m.speed*speed + f.correction
}

// learnOutcomes corrects later forecasts by those whose outcome is known at a time. Both outcomes count
// only once the horizon is over: otherwise those that are forgotten before would be mostly of one kind.
func (f *HandoffForecast) learnOutcomes(now time.Time, handoff bool) {
	n := 0
	for _, o := range f.open {
		age := now.Sub(o.at)
		o.handedOff = o.handedOff || handoff && age <= SignalLifetime // it was between two reports
		if age < HandoffHorizon {
			f.open[n] = o
			n++
			continue
		}
		outcome := 0.0
		if o.handedOff {
			outcome = 1
		}
		f.correction += calibrationStep * (outcome - o.probability)
	}
	f.open = f.open[:n]
	f.correction = max(-maxCalibration, min(f.correction, maxCalibration))
}

// ProbabilityAt returns how likely the link changes its cell within HandoffHorizon of the last report;
// 0 if that is unknown or the report is too old.
func (f *HandoffForecast) ProbabilityAt(now time.Time) float64 {
	if now.Sub(f.last.At) > SignalLifetime {
		return 0
	}
	return f.probability
}

// ExplainAt explains a forecast for people, as in "-112 dBm, neighbour 4 dB better, 9 s since the last
// handoff"; "" if there is none.
func (f *HandoffForecast) ExplainAt(now time.Time) string {
	if f.ProbabilityAt(now) == 0 {
		return ""
	}
	text := fmt.Sprintf("%.0f dBm", f.last.RSRP)
	switch better := f.last.Neighbour - f.last.RSRP; {
	case !IsRSRP(f.last.Neighbour):
	case better > 0:
		text += fmt.Sprintf(", neighbour %.0f dB better", better)
	default:
		text += fmt.Sprintf(", neighbour %.0f dB worse", -better)
	}
	if !f.changedAt.IsZero() {
		text += fmt.Sprintf(", %.0f s since the last handoff", now.Sub(f.changedAt).Seconds())
	}
	return text
}
