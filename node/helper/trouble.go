package helper

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// Tuning of reports that a helper leaves at a server, for a primary that it cannot reach.
const (
	reportLook  = time.Second
	reportAfter = 10 * time.Second // a restart, and a device that roams, are no trouble
	reportAgain = 10 * time.Minute // while it lasts: each wakes this device's radio
	reportRetry = time.Minute      // least wait after a report, whatever has changed; it doubles
	reportTries = 2                // servers
)

// reported is what was last reported about a primary.
type reported struct {
	code  wire.Code
	at    string          // "" since it has answered
	again time.Time       // the same not before
	other time.Time       // nothing else before: a cause that changes all the time is no news
	wait  backoff.Backoff // from one report to another one
	moves bool            // another cause was seen since
}

// codes are causes in the words of the wire.
var codes = map[fault.Cause]wire.Code{fault.CauseNoRoute: wire.CodeUnreachable, fault.CauseNoAnswer: wire.CodeTimeout,
	fault.CauseRefused: wire.CodeConnRefused, fault.CauseNoName: wire.CodeNameNotFound}

// dialCode is the code of an error of dialling a server.
func dialCode(err error) wire.Code {
	if code, ok := codes[tcp.CauseOf(err)]; ok {
		return code
	}
	return wire.CodeUnreachable
}

// runReports reports, until ctx ends, primaries whose addresses do not answer.
func (h *Helper) runReports(ctx context.Context) {
	tick := time.NewTicker(reportLook)
	defer tick.Stop()
	last := map[identity.PublicKey]*reported{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, p := range h.trust.ByRole(identity.RolePrimary) {
				h.report(ctx, p, now, last)
			}
		}
	}
}

// report leaves a report for a primary, if none of its addresses has answered for long.
func (h *Helper) report(ctx context.Context, p identity.Peer, now time.Time, last map[identity.PublicKey]*reported) {
	at, cause := h.unreachable(p.Key, now)
	r := last[p.Key]
	switch {
	case cause == fault.CauseUnknown || p.Paused || h.Facts().Refuses != "":
		if r != nil && now.Sub(r.other) > reportAgain {
			delete(last, p.Key)
		} else if r != nil {
			r.at = ""
		}
		return
	case r == nil:
		r = &reported{}
		last[p.Key] = r
	}
	same := r.code == codes[cause] && r.at == at
	r.moves = r.moves || !same
	if now.Before(r.other) || same && now.Before(r.again) {
		return
	}
	f := wire.Report{To: p.Key, From: h.key.Public(), Unix: h.wall().Unix(), Code: codes[cause], At: at}
	f.Sig = h.key.Sign(f.Signed())
	left := slices.ContainsFunc(h.serversOf(p), func(server string) bool {
		err := h.leave(ctx, server, f)
		if err != nil {
			h.log.Debug("a report was not left", "primary", p.Name, "server", server, "err", err)
			return false
		}
		h.log.Info("reported to a server that a primary does not answer", "primary", p.Name, "at", at, "server", server)
		return true
	})
	if left && !r.moves {
		r.wait.Reset()
	}
	r.moves, r.code, r.at, r.other = false, f.Code, at, now.Add(r.wait.Next(reportRetry, reportAgain))
	if r.again = r.other; left {
		r.again = now.Add(reportAgain)
	}
}

// leave leaves a report at a server.
func (h *Helper) leave(ctx context.Context, server string, f wire.Report) error {
	ctx, cancel := context.WithTimeout(ctx, pipe.HandshakeTimeout)
	defer cancel()
	conn, err := h.servers.Dial(ctx, server)
	if err != nil {
		return err
	}
	return pipe.LeaveReport(ctx, conn, h.name, f)
}

// serversOf are the servers at which a primary may look for reports.
func (h *Helper) serversOf(p identity.Peer) []string {
	list := slices.Clone(p.Servers)
	for _, s := range h.trust.ByRole(identity.RoleServer) {
		for _, a := range s.Addresses {
			if !has(list, a) {
				list = append(list, a)
			}
		}
	}
	return list[:min(len(list), reportTries)]
}

// unreachable returns the address of a primary that has not answered for longest, and why,
// if none of its addresses has for reportAfter.
func (h *Helper) unreachable(key identity.PublicKey, now time.Time) (at string, cause fault.Cause) {
	var oldest time.Time
	for _, t := range h.targetsOf(key) {
		t.mu.Lock()
		state, err, since := t.state, t.err, t.failing
		t.mu.Unlock()
		switch c := tcp.CauseOf(err); {
		case state == waiting, state == busy:
			return "", fault.CauseUnknown
		case since.IsZero(), codes[c] == 0 || c == fault.CauseNoRoute: // of no route this device knows more than that one
		case oldest.IsZero() || since.Before(oldest):
			if _, _, err := net.SplitHostPort(t.addr); err == nil {
				oldest, at, cause = since, t.addr, c
			}
		}
	}
	if oldest.IsZero() || now.Sub(oldest) < reportAfter {
		return "", fault.CauseUnknown
	}
	return at, cause
}

// meter measures what a relay carries, over about a second.
type meter struct {
	at             time.Time
	up, down       uint64
	upBps, downBps unit.Rate
}

// add notes what was carried until now.
func (m *meter) add(now time.Time, up, down uint64) {
	if took := now.Sub(m.at); !m.at.IsZero() && took > 0 {
		m.upBps, m.downBps = unit.RateOf(unit.Bytes(up-m.up), took), unit.RateOf(unit.Bytes(down-m.down), took)
	}
	m.at, m.up, m.down = now, up, down
}

// peerTrouble keeps what a primary says keeps it from using a pipe.
type peerTrouble struct {
	mu sync.Mutex
	f  wire.Trouble
}

func (p *peerTrouble) set(f wire.Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.f = f
}

func (p *peerTrouble) get() wire.Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.f
}
