// Package permit is how helpers get permits for onloading from the operator of their
// cells: a service that knows the cells' loads, and the helper's side that asks it. It
// stands before onload/relay; what is granted, and when to ask, package onload/allowance
// decides.
//
//	helper ── TLS 1.3, pinned keys: POST /v1/permit {"cell": …} ── service
//
// A helper that watches its permit gets two answers to one request: the grant, and as soon
// as the cell is loaded, that it is taken back.
//
//	permit.go  the words of the two
//	serve.go   the service
//	watch.go   the service takes back what it granted
//	report.go  what it tells its operator: GET /v1/permits, by the service's own key
//	view.go    the same for people
//	load.go    loads that others have measured, from a file or web page
//	keep.go    the helper's side
package permit

import (
	"time"

	"mpbond/onload/allowance"
)

// ALPN is the TLS application protocol.
const ALPN = "mpbond-permit"

// Port is where a service listens if nothing else is said.
const Port = 7605

const (
	permitPath      = "/v1/permit"
	reportPath      = "/v1/permits"
	maxBody         = 4 << 10
	maxReport       = 4 << 20
	responseTimeout = 10 * time.Second
	lockTimeout     = time.Second
)

// request asks for a permit, or for the next one.
type request struct {
	Cell string `json:"cell"`
	// Watch keeps the answer open while the permit holds. Older services do not know it, and
	// end their answer.
	Watch bool `json:"watch,omitempty"`
}

// wireAnswer is what the service says. Times are lengths, as clocks may differ.
type wireAnswer struct {
	Granted    bool    `json:"granted"`
	Cell       string  `json:"cell"`
	Load       float64 `json:"load"`
	Seconds    float64 `json:"seconds,omitempty"`       // for which the permit holds
	Why        string  `json:"why,omitempty"`           // there is none
	RetryAfter float64 `json:"again_seconds,omitempty"` // when to ask again
}

func toWireAnswer(a allowance.Answer) wireAnswer {
	return wireAnswer{a.Granted, a.Cell, a.Load, a.Life.Seconds(), a.Reason, a.RetryAfter.Seconds()}
}

func (a wireAnswer) toAnswer() allowance.Answer {
	return allowance.Answer{Granted: a.Granted, Cell: a.Cell, Load: a.Load, Life: secondsToDuration(a.Seconds), Reason: a.Why, RetryAfter: secondsToDuration(a.RetryAfter)}
}

// secondsToDuration is a length that somebody else says: none if it makes no sense.
func secondsToDuration(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, allowance.MaxLife.Seconds()) * float64(time.Second))
}
