// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// Tuning of reports that a helper leaves at a server for an unreachable primary.
const (
	reportInterval   = time.Second
	minReportDelay   = 10 * time.Second // restarts and roaming devices cause no report
	repeatInterval   = 10 * time.Minute // while the trouble lasts: each report wakes this device's radio
	minReportBackoff = time.Minute      // least wait after a report, which doubles, even if the cause changes
	maxReportServers = 2                // servers tried
)

// reportRecord is the last report about a primary.
type reportRecord struct {
	code         wire.Code
	at           string          // "" since it has answered
	repeatAt     time.Time       // time to repeat the same report
	nextAt       time.Time       // earliest time of any report: a cause that keeps changing is no news
	backoff      backoff.Backoff // between different reports
	causeChanged bool            // the cause changed since
}

// codeByCause maps causes to wire codes.
var codeByCause = map[fault.Cause]wire.Code{
	fault.CauseNoRoute:  wire.CodeUnreachable,
	fault.CauseNoAnswer: wire.CodeTimeout,
	fault.CauseRefused:  wire.CodeConnRefused,
	fault.CauseNoName:   wire.CodeNameNotFound,
}

// causeFromCode is the reverse of codeByCause.
func causeFromCode(code wire.Code) fault.Cause {
	for cause, c := range codeByCause {
		if c == code {
			return cause
		}
	}
	return fault.CauseUnknown
}

// codeOfDialError returns the code for an error of dialling a server.
func codeOfDialError(err error) wire.Code {
	if code, ok := codeByCause[tcp.CauseOf(err)]; ok {
		return code
	}
	return wire.CodeUnreachable
}

// troubleReporter leaves a report at a server for each primary that no target has reached for
// minReportDelay. So the primary can learn there why its helper is missing. It bounds the number of
// reports, since each wakes this device's radio. It owns the records and reads targets and the
// trust file. runReportLoop is called once.
type troubleReporter struct {
	key       *identity.Key
	name      string // of this device, for display
	trust     *identity.Trust
	clock     *pace.Clock
	log       *slog.Logger
	targets   *targetSet
	servers   dialer           // a fake in tests
	wall      func() time.Time // for the date of reports
	suspended func() bool      // reports whether this device carries nothing anyway

	records map[identity.PublicKey]*reportRecord
}

// runReportLoop leaves reports until ctx ends.
func (r *troubleReporter) runReportLoop(ctx context.Context) {
	r.records = map[identity.PublicKey]*reportRecord{}
	tick := r.clock.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			for _, p := range r.trust.ByRole(identity.RolePrimary) {
				r.reviewPrimary(ctx, p, now)
			}
		}
	}
}

// reviewPrimary leaves a report for a primary if all its addresses are unreachable and a report is
// due.
func (r *troubleReporter) reviewPrimary(ctx context.Context, p identity.Peer, now time.Time) {
	at, cause := findUnreachable(r.targets.targetsOfPrimary(p.Key), now)
	last := r.records[p.Key]
	if cause == fault.CauseUnknown || p.Paused || r.suspended() {
		if last != nil && now.Sub(last.nextAt) > repeatInterval {
			delete(r.records, p.Key)
		} else if last != nil {
			last.at = ""
		}
		return
	}
	if last == nil {
		last = &reportRecord{}
		r.records[p.Key] = last
	}
	if last.isReportDue(codeByCause[cause], at, now) {
		last.recordReport(codeByCause[cause], at, now, r.reportPrimary(ctx, p, codeByCause[cause], at))
	}
}

// reportPrimary leaves a report for a primary at a server and reports success.
func (r *troubleReporter) reportPrimary(ctx context.Context, p identity.Peer, code wire.Code, at string) bool {
	f := wire.Report{To: p.Key, From: r.key.Public(), Unix: r.wall().Unix(), Code: code, Address: at}
	f.Sig = r.key.Sign(f.Signed())
	return slices.ContainsFunc(r.serversOfPrimary(p), func(server string) bool {
		if err := r.leaveReport(ctx, server, f); err != nil {
			r.log.Debug("report not left at server", "primary", p.Name, "server", server, "err", err)
			return false
		}
		r.log.Info("reported an unreachable primary to a server", "primary", p.Name, "at", at, "server", server)
		return true
	})
}

// leaveReport leaves a report at a server.
func (r *troubleReporter) leaveReport(ctx context.Context, server string, f wire.Report) error {
	ctx, cancel := context.WithTimeout(ctx, pipe.HandshakeTimeout)
	defer cancel()
	conn, err := r.servers.Dial(ctx, server)
	if err != nil {
		return err
	}
	return pipe.LeaveReport(ctx, conn, r.name, f)
}

// serversOfPrimary returns the servers where a primary may look for reports.
func (r *troubleReporter) serversOfPrimary(p identity.Peer) []string {
	list := slices.Clone(p.Servers)
	for _, s := range r.trust.ByRole(identity.RoleServer) {
		for _, a := range s.Addresses {
			if !containsAddress(list, a) {
				list = append(list, a)
			}
		}
	}
	return list[:min(len(list), maxReportServers)]
}

// isReportDue reports whether a report about a primary must be sent now.
func (l *reportRecord) isReportDue(code wire.Code, at string, now time.Time) bool {
	same := l.code == code && l.at == at
	l.causeChanged = l.causeChanged || !same
	return !now.Before(l.nextAt) && !(same && now.Before(l.repeatAt))
}

// recordReport stores whether a report was left.
func (l *reportRecord) recordReport(code wire.Code, at string, now time.Time, left bool) {
	if left && !l.causeChanged {
		l.backoff.Reset()
	}
	l.causeChanged, l.code, l.at, l.nextAt = false, code, at, now.Add(l.backoff.Next(minReportBackoff, repeatInterval))
	if l.repeatAt = l.nextAt; left {
		l.repeatAt = now.Add(repeatInterval)
	}
}

// findUnreachable returns the target of a primary that has failed longest, and why, if none has
// worked for minReportDelay.
func findUnreachable(targets []*target, now time.Time) (at string, cause fault.Cause) {
	var oldest time.Time
	for _, t := range targets {
		state, since, err := t.currentPipeState()
		switch c := tcp.CauseOf(err); {
		case state == stateWaiting, state == stateBusy:
			return "", fault.CauseUnknown
		case since.IsZero(),
			// this device's own lack of a route is no news to the primary
			codeByCause[c] == 0 || c == fault.CauseNoRoute:
		case oldest.IsZero() || since.Before(oldest):
			if _, _, err := net.SplitHostPort(t.addr); err == nil {
				oldest, at, cause = since, t.addr, c
			}
		}
	}
	if oldest.IsZero() || now.Sub(oldest) < minReportDelay {
		return "", fault.CauseUnknown
	}
	return at, cause
}

// relayRate measures the rates of a relay over about a second.
type relayRate struct {
	at             time.Time
	up, down       uint64
	upBps, downBps unit.Rate
}

// updateRate updates the rates from the byte counts so far.
func (m *relayRate) updateRate(now time.Time, up, down uint64) {
	if took := now.Sub(m.at); !m.at.IsZero() && took > 0 {
		m.upBps, m.downBps = unit.RateOf(unit.Bytes(up-m.up), took), unit.RateOf(unit.Bytes(down-m.down), took)
	}
	m.at, m.up, m.down = now, up, down
}

// peerTrouble holds the primary's reason for not using a pipe.
type peerTrouble struct {
	mu      sync.Mutex
	trouble wire.Trouble
}

func (p *peerTrouble) setPeerTrouble(f wire.Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = f
}

func (p *peerTrouble) currentTrouble() wire.Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}
