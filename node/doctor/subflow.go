// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/proxy"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/control/device"
	"mpbond/core/bond"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
	"mpbond/node/probe"
	"mpbond/node/status"
)

const (
	// callTimeout bounds a TCP handshake; SYNs are sent at 0, 1 and 3 s.
	callTimeout = 4 * time.Second
	// joinTimeout bounds TLS and MP_JOIN.
	joinTimeout = 4 * time.Second
	// shortSegment makes packets shorter than 1280 bytes, the minimum MTU of IPv6, with room for
	// tunnel headers.
	shortSegment = 1100
	// askTimeout bounds a request without its rate measurement.
	askTimeout = 12 * time.Second
	maxIPs     = 4 // of one name
	maxAddrs   = 8 // of the server
)

// probeAddresses calls each address of the server by the system's routes.
func probeAddresses(ctx context.Context, p Config) (list []Address) {
	for _, at := range p.Server.Addresses[:min(len(p.Server.Addresses), maxAddrs)] {
		p.Progress("server at " + at)
		name, port, err := net.SplitHostPort(at)
		if err != nil {
			list = append(list, Address{At: at, Problem: convertProblem(fault.New(fault.Config, err,
				"pair this device with the server again"))})
			continue
		}
		ips, err := resolveServerName(ctx, name)
		if err != nil {
			list = append(list, Address{At: at, Problem: convertProblem(fault.New(fault.Unreachable, err,
				"check the name, and the DNS of this device"))})
			continue
		}
		for _, ip := range ips[:min(len(ips), maxIPs)] {
			a := Address{At: at, IP: ip.String()}
			call, cancel := context.WithTimeout(ctx, callTimeout)
			begin := time.Now()
			c, err := tcp.Dial(call, net.JoinHostPort(a.IP, port), tcp.Options{Mark: p.Mark})
			cancel()
			a.RTT, a.Problem = time.Since(begin), convertProblem(err)
			if err == nil {
				c.Close()
			}
			list = append(list, a)
		}
	}
	return list
}

func resolveServerName(ctx context.Context, name string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// ownBond is a bond of the doctor with one direct subflow.
type ownBond struct {
	endpoint *endpoint.Endpoint
	local    string
	link     string // interface with that address, "" if unknown
}

const ownSubflowID = 1

// openOwnBond joins the server by an interface, at the first address that works. It records portals
// and black holes in list.
func (p Config) openOwnBond(ctx context.Context, list []Address, iface string) (*ownBond, error) {
	err := fault.New(fault.Config, errors.New("no address of the server is known"), "pair this device with the server")
	for i := range list {
		a := &list[i]
		if a.IP == "" {
			continue
		}
		_, port, _ := net.SplitHostPort(a.At)
		var o *ownBond
		at, opt := net.JoinHostPort(a.IP, port), tcp.Options{Congestion: p.Congestion, Interface: iface,
			Mark: p.Mark, UserTimeout: 2 * askTimeout, Ledger: p.Ledger}
		if o, err = p.joinServer(ctx, at, opt); err == nil {
			return o, nil
		}
		if fault.Is(err, fault.Timeout) && a.Problem == nil && ctx.Err() == nil {
			// TCP works, and TLS with its long packets does not.
			opt.MaxSegment = shortSegment
			if o, short := p.joinServer(ctx, at, opt); short == nil {
				o.closeOwnBond()
				a.BlackHole = true
			}
		}
		if a.Problem == nil || len(list) == 1 {
			a.Problem = newProblemAt(p.Server.Name, err)
		}
		if a.Portal == "" && ctx.Err() == nil {
			a.Portal = p.detectPortal(ctx, *a, iface, fault.KindOf(err))
		}
	}
	return nil, err
}

// joinServer joins a bond of the doctor with one subflow over TCP to the server at an address.
func (p Config) joinServer(ctx context.Context, at string, opt tcp.Options) (*ownBond, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := tcp.Dial(call, at, opt)
	if err != nil {
		return nil, err
	}
	c.SetPeerName(p.Server.Key.ID().String())
	ctx, cancel = context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	j := wire.Join{Version: wire.Version, Subflow: ownSubflowID, Device: probe.DoctorDevice}
	_, _ = rand.Read(j.Bond[:]) // never fails
	sf, _, err := subflow.Join(ctx, c, p.Key.ClientConfig(p.Server.Key, wire.ALPN), j)
	if errors.Is(err, context.DeadlineExceeded) || fault.Is(err, fault.Timeout) {
		return nil, fault.New(fault.Timeout,
			fmt.Errorf("connect to %s: TCP comes through, and then no answer within %v", at, joinTimeout),
			"check mpbond there with its log and `mpbond status`")
	}
	if err != nil {
		return nil, err
	}
	o := &ownBond{endpoint: endpoint.New(endpoint.Config{Bond: bond.Config{OpensStreams: true}}),
		local: sf.LocalAddr().String(), link: device.NetworkOf(sf.LocalAddr())}
	if err := o.endpoint.Attach(sf); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *ownBond) closeOwnBond() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o.endpoint.Close(ctx)
}

// dialServerProbe opens a stream to the server's probe, bound to the one subflow of this bond.
func (o *ownBond) dialServerProbe(context.Context) (net.Conn, error) {
	c, err := o.endpoint.Dial(probe.Dest(ownSubflowID), wire.ModeBond, 0)
	if err != nil {
		return nil, err
	}
	if !c.Bind(ownSubflowID) {
		c.Close()
		return nil, errors.New("the subflow has ended")
	}
	return c, nil
}

// fetchServerReport sets what the server reports about a subflow, and about itself if that is not
// known yet.
func (p Config) fetchServerReport(ctx context.Context, l *Subflow, dial func(context.Context) (net.Conn, error),
	s *Server) {
	a, err := runServerProbe(ctx, dial, probe.Request{Resolve: !s.HasAnswered}, p.Now)
	l.Seen = a.Seen
	l.mergeLastHop(a.Hop)
	if a.Time.IsZero() {
		l.Up = false
		var r wire.Reset
		if errors.As(err, &r) && r.Code == wire.CodeNameNotFound {
			l.Up = true
			err = fault.New(fault.Unsupported, errors.New("the server's release does not support measurements"),
				"install the same release of mpbond on all devices")
		}
		l.Problem = convertProblem(err)
		return
	}
	if s.HasAnswered {
		return
	}
	s.HasAnswered, s.Version, s.IPv6, s.ClockAhead, s.ClockError = true, a.Version, a.IPv6, a.ClockAhead, a.RTT/2
	s.Copied, s.reports = a.Copied, a.Reports
	if a.Names != "" {
		s.Names = &Problem{Kind: fault.Unreachable, Text: a.Names}
		if a.Names == probe.ErrNoResolver.Error() {
			s.Names.Kind = fault.NotFound
		}
	}
}

// runServerProbe makes one measurement over a connection of its own.
func runServerProbe(ctx context.Context, dial func(context.Context) (net.Conn, error), a probe.Request,
	now func() time.Time) (probe.Measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout+time.Duration(a.Ms)*time.Millisecond)
	defer cancel()
	c, err := dial(ctx)
	if err != nil {
		return probe.Measurement{}, err
	}
	defer c.Close()
	return probe.Measure(ctx, c, a, now)
}

// mergeLastHop merges the server's sample of a subflow's last hop.
func (l *Subflow) mergeLastHop(h *api.Hop) {
	if h == nil || len(l.Hops) == 0 {
		return
	}
	last := &l.Hops[len(l.Hops)-1]
	if l.Helper || last.MTU == 0 || h.MTU > 0 && h.MTU < last.MTU {
		last.MTU = h.MTU
	}
	if rtt := msToDuration(h.MinRTTms); last.RTT == 0 || rtt > 0 && rtt < last.RTT {
		last.RTT = rtt
	}
	last.Packets, last.Retransmitted = last.Packets+h.Packets, last.Retransmitted+h.Retransmitted
	last.RejectedReports = max(last.RejectedReports, h.RejectedReports)
}

func msToDuration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func hopFromStatus(name string, h *api.Hop) Hop {
	if h == nil {
		return Hop{Name: name}
	}
	return Hop{Name: name, RTT: msToDuration(h.MinRTTms), Packets: h.Packets, Retransmitted: h.Retransmitted,
		MTU: h.MTU}
}

// measureDirect measures a direct subflow and returns which share of a processor this took. If the
// running primary has a proxy and subflow id there (0 for none), that subflow's rates are measured.
// So they are counted with its other traffic, and caps apply.
func (p Config) measureDirect(ctx context.Context, l *Subflow, o *ownBond, id uint32, s *Server) (share float64) {
	hop, dial := func() *api.Hop { h, _ := o.endpoint.HopOf(ownSubflowID); return status.Hop(h) }, o.dialServerProbe
	l.Hops = []Hop{{Name: HopPSPath}}
	p.fetchServerReport(ctx, l, dial, s)
	if p.shouldMeasureRates(l) {
		if id != 0 && p.SOCKS != "" {
			dial, hop = p.dialerViaSubflow(id), func() *api.Hop { return p.queryLocalHop(ctx, id) }
		}
		u := startCPUUsage()
		if l.DownRate = p.measureRate(ctx, l, dial, probe.Down); !l.DownRate.Stalled {
			l.UpRate = p.measureRate(ctx, l, dial, probe.Up)
		}
		share = u.cpuShare()
		l.DownRate.Limit, l.UpRate.Limit = HopPSPath, HopPSPath
	}
	local := hopFromStatus(HopPSPath, hop())
	l.Hops[0].Packets += local.Packets
	l.Hops[0].Retransmitted += local.Retransmitted
	l.Hops[0].MTU = minKnownValue(l.Hops[0].MTU, local.MTU)
	l.Hops[0].RTT = minKnownValue(l.Hops[0].RTT, local.RTT)
	return share
}

// minKnownValue returns the smaller value; 0 means unknown.
func minKnownValue[T ~int64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (p Config) shouldMeasureRates(l *Subflow) bool {
	if why := l.rateSkipReason(); p.Rates && why != "" && !p.MeteredRates {
		l.NotMeasured = why + " (--metered measures it)"
		return false
	}
	return p.Rates && l.Problem == nil
}

// rateSkipReason returns why a subflow's rates are measured only on request, "" if they always are.
func (l *Subflow) rateSkipReason() string {
	switch {
	case l.Metered:
		return "its data costs money"
	case l.Backup:
		return "it is a backup"
	case l.Capped:
		return "it has a cap"
	}
	return ""
}

// measureRate measures one direction of a subflow.
func (p Config) measureRate(ctx context.Context, l *Subflow, dial func(context.Context) (net.Conn, error),
	direction string) (r Rate) {
	p.Progress(fmt.Sprintf("rate %s by %s", direction, l.Name))
	a, err := runServerProbe(ctx, dial, probe.Request{Direction: direction, Bytes: RateBytes,
		Ms: RateTime.Milliseconds()}, p.Now)
	if err == nil && a.Rate == 0 {
		err = errors.New("nothing came through")
	}
	if err != nil {
		return Rate{Problem: convertProblem(err), Stalled: !a.Time.IsZero() && a.Bytes == 0 && ctx.Err() == nil,
			Bytes: a.Bytes}
	}
	r = Rate{Bps: a.Rate, Bytes: a.Bytes, Limit: HopHSPath}
	if direction == probe.Down && a.FarShare >= limitShare {
		r.Limit = HopPipe
	}
	return r
}

// limitShare is the share of the time in which bytes must wait at a helper for its far hop to count
// as the limit.
const limitShare = 0.5

// measureHelped measures a helped subflow over subflow id of the running primary.
func (p Config) measureHelped(ctx context.Context, l *Subflow, id uint32, s *Server) {
	l.Hops = []Hop{{Name: HopPipe}, {Name: HopHSPath}}
	if p.SOCKS == "" {
		l.NotMeasured = "the running primary has no proxy for the measurement"
		return
	}
	dial := p.dialerViaSubflow(id)
	p.fetchServerReport(ctx, l, dial, s)
	if p.shouldMeasureRates(l) {
		if l.DownRate = p.measureRate(ctx, l, dial, probe.Down); !l.DownRate.Stalled {
			waits := p.watchFarWait(ctx, id)
			l.UpRate = p.measureRate(ctx, l, dial, probe.Up)
			if waits() < limitShare && l.UpRate.Limit != "" {
				l.UpRate.Limit = HopPipe
			}
		}
	}
	if h := p.queryLocalHop(ctx, id); h != nil {
		l.Hops[0] = hopFromStatus(HopPipe, h)
	}
}

// dialerViaSubflow returns a function that opens streams to measure a subflow of the running
// primary through its proxy.
func (p Config) dialerViaSubflow(id uint32) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		d, err := proxy.SOCKS5("tcp", p.SOCKS, nil, &net.Dialer{Timeout: callTimeout})
		if err != nil {
			return nil, err
		}
		return d.(proxy.ContextDialer).DialContext(ctx, "tcp", probe.Dest(id))
	}
}

// queryLocalHop returns a sample of a subflow's first hop from the running primary, nil if unknown.
func (p Config) queryLocalHop(ctx context.Context, id uint32) *api.Hop {
	st, err := p.Status(ctx)
	if err != nil {
		return nil
	}
	for _, path := range subflowsOf(st) {
		if path.ID == id {
			return path.Hop
		}
	}
	return nil
}

// watchFarWait samples a subflow of the running primary until the returned function is called. That
// function returns in which share of the samples bytes to the server waited at the helper.
func (p Config) watchFarWait(ctx context.Context, id uint32) (share func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	samples, waits := 0, 0
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			st, err := p.Status(ctx)
			if err != nil {
				continue
			}
			for _, path := range subflowsOf(st) {
				if path.ID == id && path.Hop != nil {
					samples++
					if msToDuration(path.Hop.FarWaitMs) > probe.FarWaitThreshold {
						waits++
					}
				}
			}
		}
	})
	return func() float64 {
		cancel()
		all.Wait()
		return float64(waits) / float64(max(samples, 1))
	}
}
