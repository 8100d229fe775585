// SPDX-License-Identifier: Apache-2.0

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

// helperPool holds the helpers of this primary. It listens for their pipes, authenticates the
// callers and passes the first pipe of a helper to supervise, which returns when no pipe is left.
// Further pipes wait in the helper's reserve. It sends helpers the server's addresses and why this
// device has no server, and passes on the facts that they report. A helper that is no longer
// trusted leaves the pool at once, with its pipes. Safe for concurrent use; mu is held while locks
// of helpers, of the trust file and of deviceStates are taken.
type helperPool struct {
	key           *identity.Key
	trust         *identity.Trust
	listeners     []pipe.Listener
	states        *deviceStates
	troubles      *troubleLog
	demand        *demand
	supervise     func(context.Context, *helper, *pipe.Waiting)
	serverTrouble func() wire.Trouble // why this device has no server; its Text is empty if it has one
	log           *slog.Logger
	unknownLog    *loglimit.Limiter // rate-limited, for lines that unknown callers cause
	rec           *trace.Recorder   // nil: no trace

	mu        sync.Mutex
	byKey     map[identity.PublicKey]*helper
	conns     map[net.Conn]bool // pipes in a handshake
	callCount api.Calls         // connections to the listeners
	isClosing bool              // closeHandshakes was called
	wg        sync.WaitGroup
}

// Tuning.
const (
	// maxHandshakes bounds unauthenticated pipes, maxPerSource those of one source, and
	// maxPerSourceMinute the handshakes that one source may start in a minute. While a pipe is
	// broken, a helper calls each address every 250 ms.
	maxHandshakes, maxPerSource, maxPerSourceMinute = 64, 16, 1200
)

// listenForPipes opens the addresses of a comma-separated list. An empty list opens none.
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

// listenAddr returns the first address where helpers connect, or nil if there is none.
func (p *helperPool) listenAddr() net.Addr {
	if len(p.listeners) == 0 {
		return nil
	}
	return p.listeners[0].Addr()
}

// acceptPipes accepts pipes of helpers until ctx ends.
func (p *helperPool) acceptPipes(ctx context.Context) error {
	if len(p.listeners) == 0 {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	admission := tcp.NewAdmissionLimit(maxHandshakes, maxPerSource, maxPerSourceMinute)
	ends := make(chan error, len(p.listeners))
	for _, l := range p.listeners {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		go func() {
			err := p.acceptFrom(ctx, l, admission)
			cancel() // all listeners end together
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

// acceptFrom accepts pipes at one listener until ctx ends or accepting fails.
func (p *helperPool) acceptFrom(ctx context.Context, l pipe.Listener, admission *tcp.AdmissionLimit) error {
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		p.countHelperCall(c.RemoteAddr(), time.Now())
		// above the limit, new half-open pipes evict old ones
		visit := admission.AdmitEvicting(c.RemoteAddr(), func() { abortConn(c) })
		if visit == nil {
			abortConn(c)
			continue
		}
		p.wg.Go(func() {
			w := p.authenticate(ctx, c, visit)
			visit.Release()
			if w != nil {
				p.handleWaitingPipe(ctx, w)
			}
		})
	}
}

// abortConn closes a connection, with a reset where possible.
func abortConn(c pipe.Conn) {
	if t, ok := c.(*tcp.Conn); ok {
		_ = t.Abort()
	} else {
		c.Close()
	}
}

var errTooManyHandshakes = errors.New("too many connections in a handshake")

// authenticate performs the pipe handshake with a caller. It returns nil if the caller was refused.
func (p *helperPool) authenticate(ctx context.Context, c pipe.Conn, visit *tcp.Slot) *pipe.Waiting {
	p.trackConn(c, true)
	defer p.trackConn(c, false)
	w, err := pipe.Accept(
		ctx,
		c,
		identity.OnHello(p.key.ServerConfig(wire.PipeALPN, p.trust.Allowed(identity.RoleHelper)), func() error {
			if !visit.AwaitTurn() {
				return errTooManyHandshakes
			}
			return nil
		}),
	)
	if err == nil && !visit.MarkProved() {
		w.Close()
		return nil
	}
	if err != nil {
		if !visit.IsEvicted() && !errors.Is(err, errTooManyHandshakes) &&
			p.troubles.recordRefusedPipe(c.RemoteAddr(), err) {
			p.unknownLog.Log(
				slog.LevelInfo, string(fault.KindOf(err)), "pipe refused", "from", c.RemoteAddr(), "err", err,
				"hint", fault.HintOf(err),
			)
		}
		c.Close()
		return nil
	}
	p.troubles.forgetRefusedHere(w.Peer())
	if c, ok := c.(*tcp.Conn); ok {
		c.SetPeerName(w.Peer().ID().String())
	}
	return w
}

// trackConn adds a connection to conns if on is set, else it removes it.
func (p *helperPool) trackConn(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.conns[c] = true
	} else {
		delete(p.conns, c)
	}
}

// handleWaitingPipe passes a waiting pipe to the supervisor of its helper. If there is none, it
// supervises the helper itself and returns when that ends. Further pipes go into the reserve, to
// replace a broken pipe at once or to be used as a better one.
func (p *helperPool) handleWaitingPipe(ctx context.Context, w *pipe.Waiting) {
	w.SendServers(p.trust.ServerAddresses)
	key := w.Peer()
	h, first := p.admitHelperPipe(ctx, w)
	if h == nil {
		w.Close()
		return
	}
	w.OnFacts(func(f wire.Facts) { p.updateHelperFacts(key, f) })
	if first {
		p.supervise(ctx, h, w)
	} else {
		w.OnStalled(h.requestPipeFor)
	}
}

// admitHelperPipe finds or adds the helper of a pipe. It returns nil if the helper is no longer
// trusted. first reports that the caller becomes its supervisor.
func (p *helperPool) admitHelperPipe(ctx context.Context, w *pipe.Waiting) (h *helper, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, now := w.Peer(), time.Now()
	peer, ok := p.trust.Lookup(key)
	if !ok || !peer.HasRole(identity.RoleHelper) || p.isClosing {
		return nil, false
	}
	if h = p.byKey[key]; h == nil {
		h = newHelper(key, peer.Name, p.rec)
		p.byKey[key] = h
	}
	first = h.admitNewPipe(w, now)
	p.states.addOrUpdateHelper(key, peer.Name, peer.Paused, now)
	p.wg.Go(func() { p.recordPipeEnd(ctx, w, h) })
	p.wg.Go(func() {
		if ctx.Err() == nil && p.serverTrouble().Text != "" {
			w.SendTrouble(p.serverTrouble)
		}
	})
	return h, first
}

// recordPipeEnd records the end of a waiting pipe. The end of a pipe in use is recorded by its
// supervisor.
func (p *helperPool) recordPipeEnd(ctx context.Context, w *pipe.Waiting, h *helper) {
	select {
	case <-w.Done():
	case <-ctx.Done():
		return
	}
	if err := w.Err(); err != nil {
		p.rec.Add(
			trace.Event{
				Kind:   trace.PipeDown,
				Device: h.currentHelperName(),
				Text:   w.RemoteAddr().String(),
				Reason: err.Error(),
			},
		)
	}
}

// updateHelperFacts stores the facts that a helper reports.
func (p *helperPool) updateHelperFacts(key identity.PublicKey, f wire.Facts) {
	if p.states.storeHelperFacts(key, f, time.Now()) {
		p.demand.retryRefused()
	}
}

// deviceRename is a change of a device's name.
type deviceRename struct{ from, to string }

// applyTrust applies a changed trust file and returns the helpers that have new names.
func (p *helperPool) applyTrust(now time.Time) (renamed []deviceRename) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, h := range p.byKey {
		if !p.trust.Allowed(identity.RoleHelper)(key) {
			delete(p.byKey, key)
			p.states.forgetHelper(key)
			p.log.Info("helper no longer trusted", "helper", h.currentHelperName())
			h.revoke()
			continue
		}
		if peer, ok := p.trust.Lookup(key); ok {
			if from := h.setHelperName(peer.Name); from != peer.Name {
				renamed = append(renamed, deviceRename{from, peer.Name})
			}
			p.states.addOrUpdateHelper(key, peer.Name, peer.Paused, now)
		}
	}
	return renamed
}

// sendServers sends the server's addresses to each helper over a waiting pipe.
func (p *helperPool) sendServers() {
	p.forEachPipe((*helper).reservePipes, func(w *pipe.Waiting) { w.SendServers(p.trust.ServerAddresses) })
}

// sendTrouble reports to waiting helpers why this device has no server, or that it has one again.
func (p *helperPool) sendTrouble() {
	p.forEachPipe((*helper).allWaitingPipes, func(w *pipe.Waiting) { w.SendTrouble(p.serverTrouble) })
}

// forEachPipe calls do, in goroutines, for each pipe that pipes returns for a helper.
func (p *helperPool) forEachPipe(pipes func(*helper) []*pipe.Waiting, do func(*pipe.Waiting)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosing {
		return
	}
	for _, h := range p.byKey {
		for _, w := range pipes(h) {
			p.wg.Go(func() { do(w) })
		}
	}
}

// listHelpers returns the helpers.
func (p *helperPool) listHelpers() []*helper {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.byKey))
}

// helperNames returns the names of the helpers.
func (p *helperPool) helperNames() map[string]bool {
	names := map[string]bool{}
	for _, h := range p.listHelpers() {
		names[h.currentHelperName()] = true
	}
	return names
}

// helperRadios returns the radio that each helper reports.
func (p *helperPool) helperRadios() map[identity.PublicKey]wire.Radio {
	radios := map[identity.PublicKey]wire.Radio{}
	for _, h := range p.listHelpers() {
		radios[h.key] = p.states.factsOfHelper(h.key).Radio
	}
	return radios
}

// findHelper returns the helper with a key, or nil.
func (p *helperPool) findHelper(key identity.PublicKey) *helper {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byKey[key]
}

// findByLink returns the helper with the subflow that uses a link, or nil.
func (p *helperPool) findByLink(link *pipe.Link) *helper {
	for _, h := range p.listHelpers() {
		if l, _ := h.currentLink(); l != nil && l == link {
			return h
		}
	}
	return nil
}

// countReservePipes returns the number of reserve pipes for each link in use.
func (p *helperPool) countReservePipes() map[*pipe.Link]int {
	n := map[*pipe.Link]int{}
	for _, h := range p.listHelpers() {
		if l, waiting := h.currentLink(); l != nil {
			n[l] = waiting
		}
	}
	return n
}

// listWaitingPipes lists the pipes that wait: in reserve, for a suspended helper, or for the
// helper's way to the server.
func (p *helperPool) listWaitingPipes() (list []api.Pipe) {
	for _, h := range p.listHelpers() {
		for _, w := range h.unusedPipes() {
			if w.Err() == nil {
				list = append(
					list,
					api.Pipe{
						Device:  h.currentHelperName(),
						Address: w.RemoteAddr().String(),
						Via:     w.Via(),
						State:   api.PipeWaits,
						RTTms:   float64(w.RTT().Microseconds()) / 1000,
					},
				)
			}
		}
	}
	return list
}

// countHelperCall counts a connection to the helper port, except from this machine.
func (p *helperPool) countHelperCall(from net.Addr, now time.Time) {
	if a, err := netip.ParseAddrPort(from.String()); err == nil && a.Addr().IsLoopback() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.callCount.Count++
	p.callCount.Last = now
}

// callsReceived returns the count of connections to the helper port; nil if there is no port.
func (p *helperPool) callsReceived() *api.Calls {
	if len(p.listeners) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.callCount
	return &c
}

// closeHandshakes ends handshakes and prevents new goroutines. waitClosed returns when all have
// ended.
func (p *helperPool) closeHandshakes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isClosing = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *helperPool) waitClosed() { p.wg.Wait() }
