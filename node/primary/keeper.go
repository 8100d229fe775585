package primary

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// Tuning.
const (
	// A subflow that is silent for longer is given up, so that a new one can
	// be tried; TCP's own retries would be seconds apart by then.
	silentLimit = 3 * time.Second
	// userTimeout ends a direct subflow whose data nobody acknowledges.
	userTimeout = 30 * time.Second
	// dialTimeout leaves SYNs at 0, 1 and 3 s, so that a server's return shows
	// within 2 s.
	dialTimeout = 3500 * time.Millisecond
)

// subflowSupervisor opens subflows and keeps them: superviseUplink those over an interface of this
// device, superviseHelped that of a helper, with further ones by it while they raise the rate. Each
// of its goroutines opens a subflow when the device may carry something, puts it into the
// session of the moment, waits for its end, and opens it anew: after a failure with a growing
// back-off, which demand cuts short, after a restart at once. When its context ends with
// errUplinkUnused it withdraws the subflow; else the session says goodbye for all. It keeps no
// state of its own besides what its goroutines have, so it needs no lock; it may be used from
// several goroutines.
type subflowSupervisor struct {
	cfg          Config
	name         string // of this device, as the status has it
	key          *identity.Key
	trust        *identity.Trust
	server       *serverPeer
	sessions     *sessions
	states       *deviceStates
	troubles     *troubleLog
	demand       *demand
	locations    *locationMemory
	dialer       dial.Dialer
	routes       device.Routes
	countSubflow func(link string, by int)            // a subflow more or less by an interface
	updateFacts  func(identity.PublicKey, wire.Facts) // what a helper reports of itself
	log          *slog.Logger
	rec          *trace.Recorder // nil: nothing is traced
}

// liveSubflow is a subflow that has joined, as its keeper has it.
type liveSubflow struct {
	session *session
	id      wire.SubflowID
	ended   <-chan error       // tells its end
	conn    net.Conn           // that it goes by
	peer    identity.PublicKey // of the server
	since   time.Time
	server  string     // of a direct one: its address, as it is known
	link    *pipe.Link // nil if it is direct
	// lastReport is the newest report about the pipe of a helped one.
	lastReport *atomic.Pointer[pipeReport]
}

// pipeReport is what a helper told of a pipe: how much waited for it.
type pipeReport struct {
	at      time.Time
	waiting unit.Bytes
}

// joinSubflow makes a subflow over t, by a device, which the status calls by a name. link is nil
// for a direct one.
func (k *subflowSupervisor) joinSubflow(ctx context.Context, t subflow.Transport, link *pipe.Link, by deviceRef, name string) (liveSubflow, error) {
	// In this order: a server that is trusted no longer is replaced first, and the session
	// then, so a session that is current afterwards never goes with an older server.
	s, j := k.sessions.newJoin()
	server, _ := k.server.current()
	j.Helped, j.Device = link != nil, name
	m := sessionSubflow{device: by, link: link}
	if link == nil {
		m.conn = t
	}
	terms, up := k.computeTerms(m, name)
	j.Terms, m.tier = terms, terms.Tier
	seen := &atomic.Pointer[pipeReport]{}
	if link != nil {
		j.Key = link.HopKey()
		link.OnState(func(st wire.HopState) {
			if st.AboutPipe {
				seen.Store(&pipeReport{time.Now(), unit.Bytes(st.Received - st.Forwarded)})
			}
			if st.ForPrimary {
				return
			}
			if st.AboutPipe {
				s.endpoint.ForwardPipeState(wire.PipeState{Subflow: j.Subflow, HopState: st})
			} else {
				s.endpoint.ApplyRemoteHop(j.Subflow, st)
			}
		})
	}
	sf, ok, err := subflow.Join(ctx, t, k.key.ClientConfig(server.Key, wire.ALPN), j)
	if err != nil {
		return liveSubflow{}, err
	}
	sf.Terms.Rate = up
	if c, ok := t.(dial.Conn); ok && terms.Radio == wire.RadioCellular { // nothing else may wake it; the server does the same
		if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
			return liveSubflow{}, err
		}
	}
	down, err := k.sessions.addSubflow(s, sf, ok.Instance, m)
	if err != nil {
		return liveSubflow{}, err
	}
	far := "server"
	if j.Helped {
		far = "via" // the transport ends at the helper
	}
	k.log.Info("subflow joined", "path", j.Subflow, "by", name, "helped", j.Helped, far, t.RemoteAddr(), "over", t.LocalAddr().Network())
	return liveSubflow{session: s, id: j.Subflow, ended: down, conn: t, peer: server.Key, since: time.Now(), link: link, lastReport: seen}, nil
}

// computeTerms returns those of a subflow that is about to join, by the device of that name, and
// the rate that it was seen to carry to the server.
func (k *subflowSupervisor) computeTerms(m sessionSubflow, name string) (terms wire.Terms, up unit.Rate) {
	if m.link != nil {
		terms.Radio = m.link.Radio()
	} else {
		terms.Radio = device.RadioOf(m.device.link)
	}
	k.states.completeTerms(&terms, m.device)
	seen := k.locations.ratesHere(name)
	terms.Rate, terms.RTT = seen.Down, time.Duration(seen.RTTms*float64(time.Millisecond))
	return terms, seen.Up
}

// checkCap returns the error that an own link may carry nothing more, if so: that
// interface, or the one by which the routes lead to the server. Nothing is sent
// to find out.
func (k *subflowSupervisor) checkCap(ctx context.Context, link, server string) error {
	if k.cfg.Allowed == nil {
		return nil
	}
	if link == "" {
		link = k.routes.LinkTo(ctx, server, k.cfg.socketMark())
	}
	return k.checkLinkCap(link)
}

// interfaceOf returns the own interface that a connection goes by: the one that it is bound
// to, or else that has its local address; "" if that is not known.
func interfaceOf(bound string, local net.Addr) string {
	return cmp.Or(bound, device.InterfaceOf(local))
}

// checkLinkCap returns the error that an own link may carry nothing more, if so.
func (k *subflowSupervisor) checkLinkCap(link string) error {
	if k.cfg.Allowed == nil {
		return nil
	}
	if a := k.cfg.Allowed(device.CapTarget{Link: link}); a.Level == policy.CapReached {
		return fault.New(fault.Limit, fmt.Errorf("%s: %v", link, a), "raise the cap in policy.toml, or wait; see `mpbond usage`")
	}
	return nil
}

// udpFallbackReason returns why an interface does not go over UDP, "" if it need not.
func (k *subflowSupervisor) udpFallbackReason(link string, local net.Addr) string {
	return k.dialer.WhyTCP(link, local)
}
