// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// Report lists the valid permits of a service for its operator. It has durations instead of times,
// since clocks may differ.
type Report struct {
	Threshold   float64 `json:"threshold"` // load from which on nothing is granted
	LifeSeconds float64 `json:"life_seconds"`
	MaxPermits  int     `json:"most"` // per cell
	Cells       []Cell  `json:"cells"`
	// NotKept says why a restart would lose the permits, or "".
	NotKept string `json:"not_kept,omitempty"`
	// Engine describes where the service shares permits and loads with others, "" if it does not, and
	// Problems says what that lacks now.
	Engine   string   `json:"engine,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// Cell is one cell of a report.
type Cell struct {
	Name string `json:"name"`
	// Load is from 0 to 1, or null if unknown.
	Load *float64 `json:"load"`
	// Why says why the cell grants no permit to any device, or "".
	Why     string       `json:"why,omitempty"`
	Permits []HeldPermit `json:"permits"` // valid permits; never null
}

// HeldPermit is a valid permit.
type HeldPermit struct {
	Device      string  `json:"device"` // name, or "" for a device that is not trusted any more
	DeviceID    string  `json:"device_id"`
	HeldSeconds float64 `json:"held_seconds"` // without interruption
	LeftSeconds float64 `json:"left_seconds"`
}

// Report returns the valid permits: of all services, if several share them.
func (s *Service) Report(ctx context.Context) Report {
	if s.sharing != nil {
		s.readAllPermits(ctx)
	}
	names := map[string]string{}
	for _, p := range s.trust.Peers() {
		names[p.Key.ID().String()] = p.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	cells, rules := s.issuer.Cells(now)
	r := Report{Threshold: rules.Threshold, LifeSeconds: rules.Life.Seconds(),
		MaxPermits: rules.MaxPermits, NotKept: s.problem}
	if s.sharing != nil {
		r.Engine, r.Problems = s.sharing.Describe(), s.listProblems()
	}
	for _, c := range cells {
		one := Cell{Name: c.Name, Why: c.Reason, Permits: []HeldPermit{}}
		if c.LoadKnown {
			one.Load = &c.Load
		}
		for _, h := range c.Permits {
			one.Permits = append(one.Permits, HeldPermit{names[h.Device], h.Device, now.Sub(h.Since).Seconds(),
				max(h.Until.Add(-rules.ClockTolerance).Sub(now), 0).Seconds()})
		}
		r.Cells = append(r.Cells, one)
	}
	return r
}

// isAdmitted reports whether a key may connect: that of a helper, or the service's own.
func (s *Service) isAdmitted(key identity.PublicKey) bool {
	return key == s.key.Public() || s.trust.Allowed(identity.RoleHelper)(key)
}

// serveReport sends a report to the operator, identified by the service's own key.
func (s *Service) serveReport(w http.ResponseWriter, r *http.Request) {
	key, err := identity.PeerKey(r.Context().Value(connContextKey{}).(*admittedConn).ConnectionState())
	if err != nil || key != s.key.Public() {
		http.Error(w, "the report is available only with the service's own key", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Report(r.Context())) // a client that is gone asks again
}

// FetchReport returns the report of a service. It needs the service's own key. Errors are faults.
func (a Client) FetchReport(ctx context.Context) (r Report, err error) {
	status, text, err := a.requestAndReadBody(ctx, http.MethodGet, reportPath, nil, maxReport)
	switch {
	case fault.Is(err, fault.WrongKey), fault.Is(err, fault.UnknownDevice):
		return r, fault.New(fault.KindOf(err), err, hintOwnKey)
	case err != nil:
		return r, err
	case status == http.StatusForbidden:
		return r, fault.New(fault.Permission,
			errors.New("the report is available only with the service's own key"), hintOwnKey)
	case status != http.StatusOK:
		return r, fault.New(fault.Protocol, fmt.Errorf("the service answers with status %d", status),
			"the service may run an older release of mpbond")
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fault.New(fault.Protocol, fmt.Errorf("the service's answer makes no sense: %w", err),
			"is it the right address?")
	}
	return r, nil
}

// hintOwnKey says how to use the service's own key.
const hintOwnKey = "run the command where `mpbond-lab permit serve` runs, " +
	"as the same user and with the same $MPBOND_HOME"
