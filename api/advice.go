// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"mpbond/base/unit"
)

// AdviceRequest says what advice is asked for. The zero value asks for the usual transfers.
type AdviceRequest struct {
	Bytes  unit.Bytes // size of the transfer; 0: the usual ones
	Upload bool
	App    string // whose rules apply: the path of its executable; "": none
}

// Advice says which subflows would carry a transfer that began now, and what other sets of subflows
// would take. To compute it sends nothing.
type Advice struct {
	Subflows  []AdvisedSubflow  `json:"subflows"`
	Transfers []AdvisedTransfer `json:"transfers"`
	// Rule says what the rules make of the app that was asked for, "" without one. Subflows that they
	// exclude are left out.
	Rule string `json:"rule,omitempty"`
}

// PastForecasts says how right forecasts were.
type PastForecasts struct {
	// MedianErrorPercent is the median error of Forecasts.
	MedianErrorPercent float64 `json:"median_error_percent"`
	// Forecasts are those of the last answers that arrived, at most 200, the newest first.
	Forecasts []CheckedForecast `json:"forecasts"`
}

// CheckedForecast is the forecast of an answer, made when its first 16 KB had arrived, and what
// came of it.
type CheckedForecast struct {
	At              time.Time  `json:"at"`
	Bytes           unit.Bytes `json:"bytes"`    // beyond the first 16 KB
	Subflows        int        `json:"subflows"` // how many it could use
	Seconds         float64    `json:"seconds"`
	ExpectedSeconds float64    `json:"expected_seconds"`
}

// AdvisedSubflow describes a subflow, as far as it is known at this place.
type AdvisedSubflow struct {
	ID     uint32 `json:"id"`
	Device string `json:"device"` // that carries it
	Kind   string `json:"kind"`   // Direct or Helped
	Radio  string `json:"radio,omitempty"`
	// Asleep reports that the radio sleeps: the first packet has to wake it.
	Asleep bool   `json:"asleep,omitempty"`
	Tier   string `json:"tier,omitempty"` // "secondary" or "backup"; "" is primary
	// Rates are those measured, or seen at this place before; the guesses say which are neither.
	DownBps     unit.Rate `json:"down_bps"`
	UpBps       unit.Rate `json:"up_bps"`
	DownGuessed bool      `json:"down_guessed,omitempty"`
	UpGuessed   bool      `json:"up_guessed,omitempty"`
	RTTms       float64   `json:"rtt_ms"`
	// LossPercent is the share of sent packets that had to be sent again lately.
	LossPercent float64 `json:"loss_percent"`
}

// AdvisedTransfer is the advice for one transfer.
type AdvisedTransfer struct {
	Name   string     `json:"name"` // message, request, page, photo, song, video or bulk; "" if a size was given
	Bytes  unit.Bytes `json:"bytes"`
	Upload bool       `json:"upload"`
	// EverySeconds is the interval at which it is repeated, as the segments of a video are; 0: it is not.
	EverySeconds float64 `json:"every_seconds,omitempty"`
	Reason       string  `json:"reason"` // why the first set is chosen
	// OtherFromBytes is the least larger size at which another set would be chosen; 0: there is none.
	OtherFromBytes unit.Bytes `json:"other_from_bytes,omitempty"`
	// Sets are the sets of subflows that were compared, the chosen one first.
	Sets []AdvisedSet `json:"sets"`
}

// AdvisedSet is the forecast for one set of subflows.
type AdvisedSet struct {
	Subflows []uint32 `json:"subflows"`
	Seconds  float64  `json:"seconds"`
	Joules   float64  `json:"joules"` // of all radios, with the tails that the transfer causes
	// WhyNot says why the set is not used; "" for the chosen one.
	WhyNot string `json:"why_not,omitempty"`
}
