// SPDX-License-Identifier: Apache-2.0

// Package permit lets helpers request permits for onloading from the operator of their
// cells. It has the operator's service, which knows the loads of cells, and the helper's
// client. Package onload/allowance decides what is granted and when
// to ask.
//
//	helper ── TLS 1.3, pinned keys: POST /v1/permit {"cell": …} ── service
//
// A helper that watches its permit gets two responses to one request: the grant, and a
// revocation as soon as the cell is loaded.
//
//	permit.go  messages
//	serve.go   the service
//	watch.go   the service: revocation
//	report.go  the report for the operator: GET /v1/permits, with the service's own key
//	view.go    prints the report
//	load.go    reads loads from a file or web page
//	share.go   the service: what several services share
//	keep.go    the client and the helper's permit
package permit

import (
	"cmp"
	"time"

	"mpbond/onload/allowance"
)

// ALPN is the TLS application protocol.
const ALPN = "mpbond-permit"

// Port is the default TCP port of a permit service.
const Port = 7605

const (
	permitPath      = "/v1/permit"
	reportPath      = "/v1/permits"
	maxBody         = 4 << 10
	maxReport       = 4 << 20
	responseTimeout = 10 * time.Second
	lockTimeout     = time.Second
)

// request requests a permit or its renewal.
type request struct {
	Cell string `json:"cell"`
	// Watch keeps the response open while the permit is valid. Older services ignore it and end
	// their response.
	Watch bool `json:"watch,omitempty"`
}

// wireAnswer is the response of the service. It has durations instead of times, since clocks may
// differ.
type wireAnswer struct {
	Granted    bool    `json:"granted"`
	Cell       string  `json:"cell"`
	Load       float64 `json:"load"`
	Seconds    float64 `json:"seconds,omitempty"` // validity of the permit
	Why        string  `json:"why,omitempty"`     // reason of a refusal
	RetryAfter float64 `json:"retry_after_seconds,omitempty"`
	// OldRetryAfter is RetryAfter for and from former versions.
	OldRetryAfter float64 `json:"again_seconds,omitempty"`
}

// toWireAnswer converts an answer for the wire.
func toWireAnswer(a allowance.Answer) wireAnswer {
	retry := a.RetryAfter.Seconds()
	return wireAnswer{a.Granted, a.Cell, a.Load, a.Life.Seconds(), a.Reason, retry, retry}
}

// toAllowanceAnswer converts an answer from the wire.
func (a wireAnswer) toAllowanceAnswer() allowance.Answer {
	return allowance.Answer{Granted: a.Granted, Cell: a.Cell, Load: a.Load, Life: durationFromWire(a.Seconds),
		Reason: a.Why, RetryAfter: durationFromWire(cmp.Or(a.RetryAfter, a.OldRetryAfter))}
}

// durationFromWire converts seconds from the wire; invalid values become 0.
func durationFromWire(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, allowance.MaxLife.Seconds()) * float64(time.Second))
}
