// SPDX-License-Identifier: Apache-2.0

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
	// silentLimit is how long a subflow may be silent before it is given up and a new one is tried.
	// TCP's own retries are seconds apart by then.
	silentLimit = 3 * time.Second
	// userTimeout ends a direct subflow if its data is not acknowledged.
	userTimeout = 30 * time.Second
	// dialTimeout allows SYNs at 0, 1 and 3 s, so that a server's return is noticed within 2 s.
	dialTimeout = 3500 * time.Millisecond
)

// subflowSupervisor opens subflows and keeps them open: superviseUplink those over an interface of
// this device, superviseHelped that of a helper, with second subflows while they raise the rate.
// Each goroutine opens a subflow when the device is allowed to carry traffic, adds it to the
// current session, waits for its end and opens it again: after a failure with growing back-off,
// which demand cuts short; after a restart at once. When its context ends with errUplinkUnused it
// withdraws the subflow; otherwise the session says goodbye for all. The supervisor has no state
// besides its goroutines and needs no lock. Safe for concurrent use.
type subflowSupervisor struct {
	cfg          Config
	name         string // of this device, as the status shows it
	key          *identity.Key
	trust        *identity.Trust
	server       *serverPeer
	fleet        *fleetGuide
	bond         *bondHolder
	states       *deviceStates
	troubles     *troubleLog
	demand       *demand
	locations    *locationMemory
	dialer       dial.Dialer
	routes       device.Routes
	countSubflow func(iface string, by int)           // adds by to the subflow count of an interface
	updateFacts  func(identity.PublicKey, wire.Facts) // stores facts that a helper reports
	log          *slog.Logger
	rec          *trace.Recorder // nil: no trace
}

// liveSubflow is a joined subflow as its supervisor holds it.
type liveSubflow struct {
	session *session
	id      wire.SubflowID
	ended   <-chan error       // receives why it ended
	conn    net.Conn           // its connection
	peer    identity.PublicKey // the server's key
	since   time.Time
	server  string     // the server address of a direct subflow
	link    *pipe.Link // nil for a direct subflow
	// lastReport is the newest report about the pipe of a helped subflow.
	lastReport *atomic.Pointer[pipeReport]
}

// pipeReport is what a helper reported about a pipe: the bytes waiting for it.
type pipeReport struct {
	at      time.Time
	waiting unit.Bytes
}

// joinSubflow joins a subflow over t. device is the name that the status shows; link is nil for a
// direct subflow.
func (sup *subflowSupervisor) joinSubflow(
	ctx context.Context,
	t subflow.Transport,
	link *pipe.Link,
	by deviceRef,
	name string,
) (liveSubflow, error) {
	// The order matters: a changed server is replaced before the session. So a session read first
	// is never used with an older server.
	s, j := sup.bond.prepareJoin()
	server, _ := sup.server.currentServer()
	j.Helped, j.Device = link != nil, name
	m := sessionSubflow{device: by, link: link}
	if link == nil {
		m.conn = t
	}
	terms, up := sup.computeTerms(m, name)
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
	sf, ok, err := subflow.Join(ctx, t, sup.key.ClientConfig(server.Key, wire.ALPN), j)
	if err != nil {
		return liveSubflow{}, err
	}
	sf.Terms.Rate = up
	// nothing else may wake the radio; the server does the same
	if c, ok := t.(dial.Conn); ok && terms.Radio == wire.RadioCellular {
		if err := c.SetKeepAlive(dial.RadioKeepAlive(c)); err != nil {
			return liveSubflow{}, err
		}
	}
	down, err := sup.bond.addAcceptedSubflow(s, sf, ok.Instance, m)
	if err != nil {
		return liveSubflow{}, err
	}
	far := "server"
	if j.Helped {
		far = "via" // the transport ends at the helper
	}
	sup.log.Info("subflow joined", "subflow", j.Subflow, "by", name, "helped", j.Helped, far, t.RemoteAddr(),
		"over", t.LocalAddr().Network())
	return liveSubflow{
		session:    s,
		id:         j.Subflow,
		ended:      down,
		conn:       t,
		peer:       server.Key,
		since:      time.Now(),
		link:       link,
		lastReport: seen,
	}, nil
}

// computeTerms returns the terms of a subflow that is about to join, and the uplink rate that the
// named device carried at this location before.
func (sup *subflowSupervisor) computeTerms(m sessionSubflow, name string) (terms wire.Terms, up unit.Rate) {
	if m.link != nil {
		terms.Radio = m.link.Radio()
	} else {
		terms.Radio = device.RadioOf(m.device.iface)
	}
	sup.states.completeTerms(&terms, m.device)
	seen := sup.locations.ratesAtLocation(name)[name]
	terms.Rate, terms.RTT = seen.Down, time.Duration(seen.RTTms*float64(time.Millisecond))
	return terms, seen.Up
}

// checkCapBeforeDial returns an error if the cap of a local interface is used up: of that interface
// or, if iface is empty, of the one that the routes use for the server. It sends nothing.
func (sup *subflowSupervisor) checkCapBeforeDial(ctx context.Context, iface, server string) error {
	if sup.cfg.Allowed == nil {
		return nil
	}
	if iface == "" {
		iface = sup.routes.LinkTo(ctx, server, sup.cfg.socketMark())
	}
	return sup.checkInterfaceCap(iface)
}

// interfaceOf returns the local interface of a connection: the one that it is bound to, else the
// one with its local address. It returns "" if that is unknown.
func interfaceOf(bound string, local net.Addr) string {
	return cmp.Or(bound, device.InterfaceOf(local))
}

// checkInterfaceCap returns an error if the cap of a local interface is used up.
func (sup *subflowSupervisor) checkInterfaceCap(iface string) error {
	if sup.cfg.Allowed == nil {
		return nil
	}
	if a := sup.cfg.Allowed(device.CapTarget{Link: iface}); a.Level == policy.CapReached {
		return fault.New(
			fault.Limit,
			fmt.Errorf("%s: %v", iface, a),
			"raise the cap in policy.toml, or wait; see `mpbond usage`",
		)
	}
	return nil
}

// udpFallbackReason returns why an interface does not use UDP, or "" if it does or need not.
func (sup *subflowSupervisor) udpFallbackReason(iface string, local net.Addr) string {
	return sup.dialer.WhyTCP(iface, local)
}
