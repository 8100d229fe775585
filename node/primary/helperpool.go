package primary

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// helperPool knows the helpers of this primary: it listens for their pipes, has each prove
// who calls, and gives the first pipe of a helper to keep, which returns when no pipe of it is
// left; further ones wait with the helper. It tells helpers the server's addresses and why
// this device has no server, and passes on what they report of themselves. A helper that is
// trusted no longer leaves the pool at once, with its pipes. Safe for concurrent use; its lock
// is held while those of helpers, of the trust file and of standings are taken.
type helperPool struct {
	key       *identity.Key
	trust     *identity.Trust
	listeners []pipe.Listener
	standings *standings
	troubles  *troubles
	demand    *demand
	keep      func(context.Context, *helper, *pipe.Waiting)
	noServer  func() wire.Trouble // why this device has no server; without a text if it has
	log       *slog.Logger
	strangers *loglimit.Limiter // the log, for what strangers cause
	rec       *trace.Recorder   // nil: nothing is traced

	mu     sync.Mutex
	all    map[identity.PublicKey]*helper
	conns  map[net.Conn]bool // pipes in a handshake
	calls  api.Calls         // to the listeners
	ending bool              // close was called
	wg     sync.WaitGroup
}

// Tuning.
const (
	// maxHandshakes bounds pipes that have not proved whose they are, maxFromOne
	// those of one source, and maxPerMinute how many one source may begin in a
	// minute. A helper calls each 250 ms, at each address, while a pipe is broken.
	maxHandshakes, maxFromOne, maxPerMinute = 64, 16, 1200
)

// listenForPipes opens the addresses of a comma-separated list, none if it is empty.
func listenForPipes(list string, o tcp.Options) (listeners []pipe.Listener, err error) {
	carriers := pipe.Any{pipe.TCP(o), pipe.RFCOMM{}}
	for addr := range strings.SplitSeq(list, ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		l, err := carriers.Listen(context.Background(), addr)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// addr returns where helpers connect, the first of several, nil if nowhere.
func (p *helperPool) addr() net.Addr {
	if len(p.listeners) == 0 {
		return nil
	}
	return p.listeners[0].Addr()
}

// run takes the calls of helpers until ctx ends.
func (p *helperPool) run(ctx context.Context) error {
	if len(p.listeners) == 0 {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gate := tcp.NewGate(maxHandshakes, maxFromOne, maxPerMinute)
	ends := make(chan error, len(p.listeners))
	for _, l := range p.listeners {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		go func() {
			err := p.acceptFrom(ctx, l, gate)
			cancel() // all end together
			ends <- err
		}()
	}
	var first error
	for range p.listeners {
		if err := <-ends; first == nil {
			first = err
		}
	}
	return first
}

func (p *helperPool) acceptFrom(ctx context.Context, l pipe.Listener, gate *tcp.Gate) error {
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		p.noteCall(c.RemoteAddr(), time.Now())
		v := gate.Enter(c.RemoteAddr(), func() { abort(c) }) // more half-open pipes than anybody has helpers replace others
		if v == nil {
			abort(c)
			continue
		}
		p.wg.Go(func() {
			w := p.handshake(ctx, c, v)
			v.Leave()
			if w != nil {
				p.addPipe(ctx, w)
			}
		})
	}
}

// abort closes a connection, if it can with a reset.
func abort(c pipe.Conn) {
	if t, ok := c.(*tcp.Conn); ok {
		_ = t.Abort()
	} else {
		c.Close()
	}
}

var errCrowd = errors.New("too many connections wait for their handshake")

// handshake proves who calls; nil means that it was refused.
func (p *helperPool) handshake(ctx context.Context, c pipe.Conn, v *tcp.Visit) *pipe.Waiting {
	p.track(c, true)
	defer p.track(c, false)
	w, err := pipe.Accept(ctx, c, identity.OnHello(p.key.Server(wire.PipeALPN, p.trust.Allowed(identity.RoleHelper)), func() error {
		if !v.Spoke() {
			return errCrowd
		}
		return nil
	}))
	if err == nil && !v.Prove() {
		w.Close()
		return nil
	}
	if err != nil {
		if !v.Evicted() && !errors.Is(err, errCrowd) && p.troubles.refuse(c.RemoteAddr(), err) {
			p.strangers.Log(slog.LevelInfo, string(fault.KindOf(err)), "pipe refused", "from", c.RemoteAddr(), "err", err, "hint", fault.HintOf(err))
		}
		c.Close()
		return nil
	}
	p.troubles.forgetRefusedHere(w.Peer())
	if c, ok := c.(*tcp.Conn); ok {
		c.For(w.Peer().ID().String())
	}
	return w
}

func (p *helperPool) track(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.conns[c] = true
	} else {
		delete(p.conns, c)
	}
}

// addPipe gives a waiting pipe to the keeper of its helper, and becomes that keeper if there is
// none. Further pipes wait in reserve, so that a broken one is replaced at once, and a better
// one used.
func (p *helperPool) addPipe(ctx context.Context, w *pipe.Waiting) {
	w.Tell(p.trust.ServerAddresses)
	key := w.Peer()
	h, first := p.admitPipe(ctx, w)
	if h == nil {
		w.Close()
		return
	}
	w.OnFacts(func(f wire.Facts) { p.noteFacts(key, f) })
	if first {
		p.keep(ctx, h, w)
	} else {
		w.OnStalled(h.upsetLink)
	}
}

// admitPipe finds the helper of a pipe, nil if it is not trusted any more, and reports whether
// the caller becomes its keeper.
func (p *helperPool) admitPipe(ctx context.Context, w *pipe.Waiting) (h *helper, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, now := w.Peer(), time.Now()
	peer, ok := p.trust.Lookup(key)
	if !ok || !peer.Is(identity.RoleHelper) || p.ending {
		return nil, false
	}
	if h = p.all[key]; h == nil {
		h = newHelper(key, peer.Name, p.rec)
		p.all[key] = h
	}
	first = h.admitPipe(w, now)
	p.standings.setHelper(key, peer.Name, peer.Paused, now)
	p.wg.Go(func() { p.reportEnd(ctx, w, h) })
	p.wg.Go(func() {
		if ctx.Err() == nil && p.noServer().Text != "" {
			w.SendTrouble(p.noServer)
		}
	})
	return h, first
}

// reportEnd records the end of a pipe that waits. That of one that carries a subflow is
// recorded by its keeper.
func (p *helperPool) reportEnd(ctx context.Context, w *pipe.Waiting, h *helper) {
	select {
	case <-w.Done():
	case <-ctx.Done():
		return
	}
	if err := w.Err(); err != nil {
		p.rec.Add(trace.Event{Kind: trace.PipeDown, Device: h.currentName(), Text: w.RemoteAddr().String(), Reason: err.Error()})
	}
}

// noteFacts takes what a helper reports of itself.
func (p *helperPool) noteFacts(key identity.PublicKey, f wire.Facts) {
	if p.standings.setFacts(key, f, time.Now()) {
		p.demand.retryRefused()
	}
}

// renaming is a device that has another name from now on.
type renaming struct{ from, to string }

// reload acts on the trust file after it was read again, and returns which helpers have
// other names now.
func (p *helperPool) reload(now time.Time) (renamed []renaming) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, h := range p.all {
		if !p.trust.Allowed(identity.RoleHelper)(key) {
			delete(p.all, key)
			p.standings.forgetHelper(key)
			p.log.Info("helper is trusted no longer", "helper", h.currentName())
			h.revoke()
			continue
		}
		if peer, ok := p.trust.Lookup(key); ok {
			if from := h.rename(peer.Name); from != peer.Name {
				renamed = append(renamed, renaming{from, peer.Name})
			}
			p.standings.setHelper(key, peer.Name, peer.Paused, now)
		}
	}
	return renamed
}

// reportServers tells each helper the server's addresses: a pipe of it waits, or will.
func (p *helperPool) reportServers() {
	p.forEachPipe((*helper).inReserve, func(w *pipe.Waiting) { w.Tell(p.trust.ServerAddresses) })
}

// reportTrouble tells waiting helpers why this device has no server, or that it has one
// again.
func (p *helperPool) reportTrouble() {
	p.forEachPipe((*helper).waiting, func(w *pipe.Waiting) { w.SendTrouble(p.noServer) })
}

// forEachPipe does something for each pipe that pipes returns of a helper, in goroutines.
func (p *helperPool) forEachPipe(pipes func(*helper) []*pipe.Waiting, do func(*pipe.Waiting)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return
	}
	for _, h := range p.all {
		for _, w := range pipes(h) {
			p.wg.Go(func() { do(w) })
		}
	}
}

// list returns the helpers.
func (p *helperPool) list() []*helper {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.all))
}

// names returns the names of the helpers.
func (p *helperPool) names() map[string]bool {
	names := map[string]bool{}
	for _, h := range p.list() {
		names[h.currentName()] = true
	}
	return names
}

// radios returns the radio that each helper reports.
func (p *helperPool) radios() map[identity.PublicKey]wire.Radio {
	radios := map[identity.PublicKey]wire.Radio{}
	for _, h := range p.list() {
		radios[h.key] = p.standings.factsOf(h.key).Radio
	}
	return radios
}

// find returns the helper of a key, nil if it is not here.
func (p *helperPool) find(key identity.PublicKey) *helper {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[key]
}

// findBy returns the helper whose subflow a link carries, nil if none.
func (p *helperPool) findBy(link *pipe.Link) *helper {
	for _, h := range p.list() {
		if l, _ := h.currentLink(); l != nil && l == link {
			return h
		}
	}
	return nil
}

// countWaiting returns how many pipes wait beside each link in use.
func (p *helperPool) countWaiting() map[*pipe.Link]int {
	n := map[*pipe.Link]int{}
	for _, h := range p.list() {
		if l, waiting := h.currentLink(); l != nil {
			n[l] = waiting
		}
	}
	return n
}

// waitingPipes lists the pipes that wait.
func (p *helperPool) waitingPipes() (list []api.Pipe) {
	for _, h := range p.list() {
		for _, w := range h.waiting() {
			if w.Err() == nil {
				list = append(list, api.Pipe{Device: h.currentName(), Address: w.RemoteAddr().String(), Via: w.Via(), State: api.PipeWaits, RTTms: float64(w.RTT().Microseconds()) / 1000})
			}
		}
	}
	return list
}

// noteCall counts a connection to the port for helpers, unless it came from this machine.
func (p *helperPool) noteCall(from net.Addr, now time.Time) {
	if a, err := netip.ParseAddrPort(from.String()); err == nil && a.Addr().IsLoopback() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls.Count++
	p.calls.Last = now
}

// callsReceived returns the connections that reached the port for helpers; nil if there is none.
func (p *helperPool) callsReceived() *api.Calls {
	if len(p.listeners) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls
	return &c
}

// close ends handshakes; nothing is begun from now on. wait returns when nothing is left.
func (p *helperPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *helperPool) wait() { p.wg.Wait() }
