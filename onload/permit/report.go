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

// Report is what a service grants now, for its operator. Times are lengths, as clocks may
// differ.
type Report struct {
	Threshold   float64 `json:"threshold"` // the load from which on nothing is granted
	LifeSeconds float64 `json:"life_seconds"`
	MaxPermits  int     `json:"most"` // permits of a cell
	Cells       []Cell  `json:"cells"`
	// NotKept is why a restart would forget who has permits, "" if it would not.
	NotKept string `json:"not_kept,omitempty"`
}

// Cell is one cell of a report.
type Cell struct {
	Name string `json:"name"`
	// Load is from 0 to 1, null where it is not known now.
	Load *float64 `json:"load"`
	// Why nothing is granted there, whoever asks; empty: it may be.
	Why     string       `json:"why,omitempty"`
	Permits []HeldPermit `json:"permits"` // that hold; never null
}

// HeldPermit is a permit that holds.
type HeldPermit struct {
	Device      string  `json:"device"` // its name, "" for one that is not trusted any more
	DeviceID    string  `json:"device_id"`
	HeldSeconds float64 `json:"held_seconds"` // without a pause
	LeftSeconds float64 `json:"left_seconds"`
}

// Report tells what is granted now.
func (s *Service) Report() Report {
	names := map[string]string{}
	for _, p := range s.trust.Peers() {
		names[p.Key.ID().String()] = p.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	cells, rules := s.issuer.Cells(now)
	r := Report{Threshold: rules.Threshold, LifeSeconds: rules.Life.Seconds(), MaxPermits: rules.MaxPermits, NotKept: s.problem}
	for _, c := range cells {
		one := Cell{Name: c.Name, Why: c.Reason, Permits: []HeldPermit{}}
		if c.LoadKnown {
			one.Load = &c.Load
		}
		for _, h := range c.Permits {
			one.Permits = append(one.Permits, HeldPermit{names[h.Device], h.Device, now.Sub(h.Since).Seconds(), h.Until.Sub(now).Seconds()})
		}
		r.Cells = append(r.Cells, one)
	}
	return r
}

// isAdmitted tells whose calls are taken: helpers', and those of who has the service's own key.
func (s *Service) isAdmitted(key identity.PublicKey) bool {
	return key == s.key.Public() || s.trust.Allowed(identity.RoleHelper)(key)
}

// serveReport gives the operator a report: who has which permit is nobody else's business.
func (s *Service) serveReport(w http.ResponseWriter, r *http.Request) {
	key, err := identity.PeerKey(r.Context().Value(connContextKey{}).(*admittedConn).ConnectionState())
	if err != nil || key != s.key.Public() {
		http.Error(w, "this is told to the service's own key alone", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Report()) // who has gone asks again
}

// FetchReport asks a service, by its own key, what it grants now. Errors are faults.
func (a Client) FetchReport(ctx context.Context) (r Report, err error) {
	status, text, err := a.doRequest(ctx, http.MethodGet, reportPath, nil, maxReport)
	switch {
	case fault.Is(err, fault.WrongKey), fault.Is(err, fault.UnknownDevice):
		return r, fault.New(fault.KindOf(err), err, hintOwnKey)
	case err != nil:
		return r, err
	case status == http.StatusForbidden:
		return r, fault.New(fault.Permission, errors.New("what is granted is told to the service's own key alone"), hintOwnKey)
	case status != http.StatusOK:
		return r, fault.New(fault.Protocol, fmt.Errorf("the service answers with status %d", status), "does it run an older mpbond?")
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fault.New(fault.Protocol, fmt.Errorf("the service's answer makes no sense: %w", err), "is it the right address?")
	}
	return r, nil
}

const hintOwnKey = "ask where `mpbond-lab permit serve` runs, as the same user and with the same $MPBOND_HOME"
