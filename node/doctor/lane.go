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
	// callTimeout bounds a TCP handshake: SYNs leave at 0, 1 and 3 s.
	callTimeout = 4 * time.Second
	// joinTimeout bounds TLS and MP_JOIN.
	joinTimeout = 4 * time.Second
	// shortSegment makes packets of less than 1280 bytes, which IPv6 asks of every
	// link, with room for headers of tunnels.
	shortSegment = 1100
	// lookTimeout bounds what is asked besides rates.
	lookTimeout = 12 * time.Second
	maxIPs      = 4 // of one name
	maxAddrs    = 8 // of the server
)

// addresses calls each address of the server, by the system's routes.
func addresses(ctx context.Context, p Patient) (list []Address) {
	for _, at := range p.Server.Addresses[:min(len(p.Server.Addresses), maxAddrs)] {
		p.Progress("server at " + at)
		name, port, err := net.SplitHostPort(at)
		if err != nil {
			list = append(list, Address{At: at, Problem: problem(fault.New(fault.Config, err, "pair this device with the server again"))})
			continue
		}
		ips, err := resolve(ctx, name)
		if err != nil {
			list = append(list, Address{At: at, Problem: problem(fault.New(fault.Unreachable, err, "is the name right, and does this device have DNS?"))})
			continue
		}
		for _, ip := range ips[:min(len(ips), maxIPs)] {
			a := Address{At: at, IP: ip.String()}
			call, cancel := context.WithTimeout(ctx, callTimeout)
			begin := time.Now()
			c, err := tcp.Dial(call, net.JoinHostPort(a.IP, port), tcp.Options{Mark: p.Mark})
			cancel()
			a.RTT, a.Problem = time.Since(begin), problem(err)
			if err == nil {
				c.Close()
			}
			list = append(list, a)
		}
	}
	return list
}

func resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// own is a bond of the doctor's own with one direct subflow.
type own struct {
	e     *endpoint.Endpoint
	local string
	link  string // interface that has that address, "" if none is known
}

const ownPath = 1

// open joins the server by an interface, at the first address that lets it. What
// answers at others in its place is noted there.
func (p Patient) open(ctx context.Context, list []Address, iface string) (*own, error) {
	err := fault.New(fault.Config, errors.New("no address is known of the server"), "pair this device with the server")
	for i := range list {
		a := &list[i]
		if a.IP == "" {
			continue
		}
		_, port, _ := net.SplitHostPort(a.At)
		var o *own
		at, opt := net.JoinHostPort(a.IP, port), tcp.Options{Congestion: p.Congestion, Interface: iface, Mark: p.Mark, UserTimeout: 2 * lookTimeout, Ledger: p.Ledger}
		if o, err = p.join(ctx, at, opt); err == nil {
			return o, nil
		}
		if fault.Is(err, fault.Timeout) && a.Problem == nil && ctx.Err() == nil {
			// TCP came through and TLS, whose packets are long, did not.
			opt.MaxSegment = shortSegment
			if o, short := p.join(ctx, at, opt); short == nil {
				o.close()
				a.BlackHole = true
			}
		}
		if a.Problem == nil || len(list) == 1 {
			a.Problem = problemAt(p.Server.Name, err)
		}
		if a.Portal == "" && ctx.Err() == nil {
			a.Portal = p.portal(ctx, *a, iface, fault.KindOf(err))
		}
	}
	return nil, err
}

func (p Patient) join(ctx context.Context, at string, opt tcp.Options) (*own, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := tcp.Dial(call, at, opt)
	if err != nil {
		return nil, err
	}
	c.For(p.Server.Key.ID().String())
	ctx, cancel = context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	j := wire.Join{Version: wire.Version, Path: ownPath, Device: probe.DoctorName}
	_, _ = rand.Read(j.Bond[:]) // never fails
	sf, _, err := subflow.Join(ctx, c, p.Key.Client(p.Server.Key, wire.ALPN), j)
	if errors.Is(err, context.DeadlineExceeded) || fault.Is(err, fault.Timeout) {
		return nil, fault.New(fault.Timeout, fmt.Errorf("connect to %s: TCP comes through, and then no answer within %v", at, joinTimeout), "is mpbond well there? Its log and `mpbond status` tell")
	}
	if err != nil {
		return nil, err
	}
	o := &own{e: endpoint.New(endpoint.Config{Bond: bond.Config{Opens: true}}), local: sf.LocalAddr().String(), link: device.NetworkOf(sf.LocalAddr())}
	if err := o.e.Attach(sf); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *own) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o.e.Close(ctx)
}

func (o *own) dial(context.Context) (net.Conn, error) {
	c, err := o.e.Dial(probe.Dest(ownPath), wire.Bond, 0)
	if err != nil {
		return nil, err
	}
	if !c.Bind(ownPath) {
		c.Close()
		return nil, errors.New("the subflow has ended")
	}
	return c, nil
}

// look asks what the server knows, for the first lane that reaches it.
func (p Patient) look(ctx context.Context, l *Lane, dial func(context.Context) (net.Conn, error), s *Server) {
	a, err := ask(ctx, dial, probe.Ask{Resolve: !s.Known}, p.Now)
	l.Seen = a.Seen
	l.addHop(a.Hop)
	if a.Time.IsZero() {
		l.Up = false
		var r wire.Reset
		if errors.As(err, &r) && r.Code == wire.CodeNameNotFound {
			l.Up = true
			err = fault.New(fault.Unsupported, errors.New("the server is of a release that measures nothing"), "install the same release of mpbond on all devices")
		}
		l.Problem = problem(err)
		return
	}
	if s.Known {
		return
	}
	s.Known, s.Version, s.IPv6, s.Ahead, s.Error = true, a.Version, a.IPv6, a.Ahead, a.RTT/2
	s.Copied, s.reports = a.Copied, a.Reports
	if a.Names != "" {
		s.Names = &Problem{Kind: fault.Unreachable, Text: a.Names}
		if a.Names == probe.ErrNoResolver.Error() {
			s.Names.Kind = fault.NotFound
		}
	}
}

func ask(ctx context.Context, dial func(context.Context) (net.Conn, error), a probe.Ask, now func() time.Time) (probe.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout+time.Duration(a.Ms)*time.Millisecond)
	defer cancel()
	c, err := dial(ctx)
	if err != nil {
		return probe.Answer{}, err
	}
	defer c.Close()
	return probe.Do(ctx, c, a, now)
}

// addHop takes the server's word about the last hop of a lane.
func (l *Lane) addHop(h *api.Hop) {
	if h == nil || len(l.Hops) == 0 {
		return
	}
	last := &l.Hops[len(l.Hops)-1]
	if l.Helper || last.MTU == 0 || h.MTU > 0 && h.MTU < last.MTU {
		last.MTU = h.MTU
	}
	if rtt := duration(h.MinRTTms); last.RTT == 0 || rtt > 0 && rtt < last.RTT {
		last.RTT = rtt
	}
	last.Packets, last.Resent = last.Packets+h.Packets, last.Resent+h.Resent
	last.RejectedReports = max(last.RejectedReports, h.RejectedReports)
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func hopOf(name string, h *api.Hop) Hop {
	if h == nil {
		return Hop{Name: name}
	}
	return Hop{Name: name, RTT: duration(h.MinRTTms), Packets: h.Packets, Resent: h.Resent, MTU: h.MTU}
}

// measureDirect fills in a direct lane, and tells what of a processor the rates
// took. If the running primary has subflow id there, 0 for none, and a proxy, the
// rates are that subflow's, so that they are counted with all else that it carries,
// and no cap is passed by.
func (p Patient) measureDirect(ctx context.Context, l *Lane, o *own, id uint32, s *Server) (share float64) {
	hop, dial := func() *api.Hop { h, _ := o.e.HopOf(ownPath); return status.Hop(h) }, o.dial
	l.Hops = []Hop{{Name: PSPath}}
	p.look(ctx, l, dial, s)
	if p.rated(l) {
		if id != 0 && p.SOCKS != "" {
			dial, hop = p.through(id), func() *api.Hop { return p.hopOf(ctx, id) }
		}
		u := startUsed()
		if l.Down = p.rate(ctx, l, dial, probe.Down); !l.Down.Stalled {
			l.ToUp = p.rate(ctx, l, dial, probe.Up)
		}
		share = u.share()
		l.Down.Limit, l.ToUp.Limit = PSPath, PSPath
	}
	near := hopOf(PSPath, hop())
	l.Hops[0].Packets += near.Packets
	l.Hops[0].Resent += near.Resent
	l.Hops[0].MTU = least(l.Hops[0].MTU, near.MTU)
	l.Hops[0].RTT = least(l.Hops[0].RTT, near.RTT)
	return share
}

// least is the smaller one of what is known.
func least[T ~int64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (p Patient) rated(l *Lane) bool {
	if why := l.spared(); p.Rates && why != "" && !p.PayRates {
		l.NotAsked = why + " (--metered measures it)"
		return false
	}
	return p.Rates && l.Problem == nil
}

// spared is why a lane's rates are not measured unasked, "" for nothing.
func (l *Lane) spared() string {
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

// rate measures one direction of a lane.
func (p Patient) rate(ctx context.Context, l *Lane, dial func(context.Context) (net.Conn, error), direction string) (r Rate) {
	p.Progress(fmt.Sprintf("rate %s by %s", direction, l.Name))
	a, err := ask(ctx, dial, probe.Ask{Direction: direction, Bytes: RateBytes, Ms: RateTime.Milliseconds()}, p.Now)
	if err == nil && a.Rate == 0 {
		err = errors.New("nothing came through")
	}
	if err != nil {
		return Rate{Problem: problem(err), Stalled: !a.Time.IsZero() && a.Bytes == 0 && ctx.Err() == nil, Bytes: a.Bytes}
	}
	r = Rate{Bps: a.Rate, Bytes: a.Bytes, Limit: HSPath}
	if direction == probe.Down && a.FarShare >= limitShare {
		r.Limit = Pipe
	}
	return r
}

// limitShare is the part of the time in which bytes must have waited at a helper
// for its far hop to be the limit.
const limitShare = 0.5

// measureHelped fills in a lane by a helper, over subflow id of the running
// primary.
func (p Patient) measureHelped(ctx context.Context, l *Lane, id uint32, s *Server) {
	l.Hops = []Hop{{Name: Pipe}, {Name: HSPath}}
	if p.SOCKS == "" {
		l.NotAsked = "the running primary has no proxy to measure it through"
		return
	}
	dial := p.through(id)
	p.look(ctx, l, dial, s)
	if p.rated(l) {
		if l.Down = p.rate(ctx, l, dial, probe.Down); !l.Down.Stalled {
			waits := p.watch(ctx, id)
			l.ToUp = p.rate(ctx, l, dial, probe.Up)
			if waits() < limitShare && l.ToUp.Limit != "" {
				l.ToUp.Limit = Pipe
			}
		}
	}
	if h := p.hopOf(ctx, id); h != nil {
		l.Hops[0] = hopOf(Pipe, h)
	}
}

// through makes streams that measure a subflow of the running primary, by its
// proxy.
func (p Patient) through(id uint32) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		d, err := proxy.SOCKS5("tcp", p.SOCKS, nil, &net.Dialer{Timeout: callTimeout})
		if err != nil {
			return nil, err
		}
		return d.(proxy.ContextDialer).DialContext(ctx, "tcp", probe.Dest(id))
	}
}

// hopOf is the hop of a subflow of the running primary that begins here, nil if it
// does not tell.
func (p Patient) hopOf(ctx context.Context, id uint32) *api.Hop {
	st, err := p.Status(ctx)
	if err != nil {
		return nil
	}
	for _, path := range paths(st) {
		if path.ID == id {
			return path.Hop
		}
	}
	return nil
}

// watch looks at a subflow of the running primary until the function that it
// returns is called, which tells for what part of the time bytes to the server
// waited at the helper.
func (p Patient) watch(ctx context.Context, id uint32) (share func() float64) {
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
			for _, path := range paths(st) {
				if path.ID == id && path.Hop != nil {
					samples++
					if duration(path.Hop.FarWaitMs) > probe.Waits {
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
