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
	path       = "/v1/permit"
	reportPath = "/v1/permits"
	maxBody    = 4 << 10
	maxReport  = 4 << 20
	answerTime = 10 * time.Second
	fileWait   = time.Second
)

// request asks for a permit, or for the next one.
type request struct {
	Cell string `json:"cell"`
	// Watch keeps the answer open while the permit holds. Older services do not know it, and
	// end their answer.
	Watch bool `json:"watch,omitempty"`
}

// answer is what the service says. Times are lengths, as clocks may differ.
type answer struct {
	Granted bool    `json:"granted"`
	Cell    string  `json:"cell"`
	Load    float64 `json:"load"`
	Seconds float64 `json:"seconds,omitempty"`       // for which the permit holds
	Why     string  `json:"why,omitempty"`           // there is none
	Again   float64 `json:"again_seconds,omitempty"` // when to ask again
}

func answerOf(a allowance.Answer) answer {
	return answer{a.Granted, a.Cell, a.Load, a.Life.Seconds(), a.Why, a.Again.Seconds()}
}

func (a answer) Answer() allowance.Answer {
	return allowance.Answer{Granted: a.Granted, Cell: a.Cell, Load: a.Load, Life: seconds(a.Seconds), Why: a.Why, Again: seconds(a.Again)}
}

// seconds is a length that somebody else says: none if it makes no sense.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, allowance.MaxLife.Seconds()) * float64(time.Second))
}
