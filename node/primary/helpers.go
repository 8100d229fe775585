package primary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"mpbond/api"
	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// helperSlot is a helper that calls: its subflow, and pipes in reserve. Its
// variables are guarded by Primary.mu.
type helperSlot struct {
	name     string // as it is called now
	key      identity.PublicKey
	revoked  chan struct{}   // closed when the helper is trusted no longer
	kept     bool            // a goroutine keeps its subflow
	lastPipe time.Time       // when one came last
	reserve  []*pipe.Waiting // oldest first
	fresh    chan struct{}   // gets a value when reserve has grown
	wishes   chan wish       // where its subflow shall go on; tend takes them
	link     *pipe.Link      // that carries its subflow, or nil
	attempt  int             // which of the server's addresses that subflow goes to
	held     *pipe.Waiting   // while it rests; else nil
}

func (s *helperSlot) isRevoked() bool {
	select {
	case <-s.revoked:
		return true
	default:
		return false
	}
}

// listen opens what Config.Pipe names, or nothing.
func (p *Primary) listen() error {
	carriers := pipe.Any{pipe.TCP(tcp.Options{Congestion: p.cfg.Congestion, UserTimeout: 2 * userTimeout, Mark: p.cfg.mark(),
		Ledger: p.cfg.Usage.Ledger(policy.ForPipe)}), pipe.RFCOMM{}}
	for addr := range strings.SplitSeq(p.cfg.Pipe, ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		l, err := carriers.Listen(context.Background(), addr)
		if err != nil {
			for _, l := range p.pipes {
				l.Close()
			}
			return err
		}
		p.pipes = append(p.pipes, l)
	}
	return nil
}

// acceptPipes takes the calls of helpers until ctx ends.
func (p *Primary) acceptPipes(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gate := tcp.NewGate(maxHandshakes, maxFromOne, maxPerMinute)
	ends := make(chan error, len(p.pipes))
	for _, l := range p.pipes {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		go func() {
			err := p.acceptFrom(ctx, l, gate)
			cancel() // all end together
			ends <- err
		}()
	}
	var first error
	for range p.pipes {
		if err := <-ends; first == nil {
			first = err
		}
	}
	return first
}

func (p *Primary) acceptFrom(ctx context.Context, l pipe.Listener, gate *tcp.Gate) error {
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
				p.useHelper(ctx, w)
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
func (p *Primary) handshake(ctx context.Context, c pipe.Conn, v *tcp.Visit) *pipe.Waiting {
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
			p.refusals.Log(slog.LevelInfo, string(fault.KindOf(err)), "pipe refused", "from", c.RemoteAddr(), "err", err, "hint", fault.HintOf(err))
		}
		c.Close()
		return nil
	}
	p.troubles.accepted(w.Peer())
	if c, ok := c.(*tcp.Conn); ok {
		c.For(w.Peer().ID().String())
	}
	return w
}

func (p *Primary) track(c net.Conn, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.conns[c] = true
	} else {
		delete(p.conns, c)
	}
}

// useHelper hands a waiting pipe to the keeper of its helper and becomes that
// keeper if there is none. Further pipes wait in reserve, so that a broken one is
// replaced at once, and a better one used.
func (p *Primary) useHelper(ctx context.Context, w *pipe.Waiting) {
	w.Tell(p.trust.ServerAddresses)
	p.mu.Lock()
	peer, ok := p.trust.Lookup(w.Peer())
	if !ok || !peer.Is(identity.RoleHelper) || p.ending { // any more
		p.mu.Unlock()
		w.Close()
		return
	}
	slot := p.helpers[w.Peer()]
	if slot == nil {
		slot = &helperSlot{name: peer.Name, key: w.Peer(), revoked: make(chan struct{}), fresh: make(chan struct{}, 1), wishes: make(chan wish)}
		p.helpers[w.Peer()] = slot
	}
	if !slot.kept {
		p.rec.Add(trace.Event{Kind: trace.DeviceUp, Device: slot.name})
	}
	p.rec.Add(trace.Event{Kind: trace.PipeUp, Device: slot.name, Text: w.RemoteAddr().String()})
	p.wg.Go(func() { p.tellEnd(ctx, w, slot) })
	slot.lastPipe = time.Now()
	p.wg.Go(func() { p.reportTo(ctx, w) })
	p.standings.setHelper(w.Peer(), peer.Name, peer.Paused, time.Now())
	key := w.Peer()
	if slot.kept {
		slot.addReserve(w)
		p.mu.Unlock()
		w.OnFacts(func(f wire.Facts) { p.factsCame(key, f) })
		w.OnStalled(func(t wire.Token) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if slot.link != nil && slot.link.Token() == t {
				slot.link.Upset()
			}
		})
		return
	}
	slot.kept = true
	p.mu.Unlock()
	w.OnFacts(func(f wire.Facts) { p.factsCame(key, f) })
	p.keepHelped(ctx, slot, w)
}

// tellEnd tells of the end of a pipe that waits. One that carries a subflow is
// told of by tend and move.
func (p *Primary) tellEnd(ctx context.Context, w *pipe.Waiting, slot *helperSlot) {
	select {
	case <-w.Done():
	case <-ctx.Done():
		return
	}
	if err := w.Err(); err != nil {
		p.rec.Add(trace.Event{Kind: trace.PipeDown, Device: p.nameOf(slot), Text: w.RemoteAddr().String(), Reason: err.Error()})
	}
}

// maxReserve bounds the pipes in reserve: one for each address at which a
// helper finds us, and more is of no use.
const maxReserve = 8

// addReserve keeps a pipe for later. Broken ones make room, then the oldest.
func (s *helperSlot) addReserve(w *pipe.Waiting) {
	s.reserve = slices.DeleteFunc(s.reserve, func(r *pipe.Waiting) bool {
		select {
		case <-r.Done():
			return true
		default:
			return false
		}
	})
	if len(s.reserve) == maxReserve {
		s.reserve[0].Close()
		s.reserve = s.reserve[1:]
	}
	s.reserve = append(s.reserve, w)
	select {
	case s.fresh <- struct{}{}:
	default:
	}
}

// takeReserve returns the newest pipe in reserve, the likeliest to work, or
// nil.
func (s *helperSlot) takeReserve() *pipe.Waiting {
	n := len(s.reserve)
	if n == 0 {
		return nil
	}
	w := s.reserve[n-1]
	s.reserve = s.reserve[:n-1]
	return w
}

// takeVia returns the newest pipe in reserve over a local link, or nil.
func (s *helperSlot) takeVia(link string) *pipe.Waiting {
	for i, w := range slices.Backward(s.reserve) {
		if w.Via() == link && w.Err() == nil {
			s.reserve = slices.Delete(s.reserve, i, i+1)
			return w
		}
	}
	return nil
}

// takeAt returns the pipe in reserve to an address, or nil.
func (s *helperSlot) takeAt(addr string) *pipe.Waiting {
	for i, w := range s.reserve {
		if w.RemoteAddr().String() == addr && w.Err() == nil {
			s.reserve = slices.Delete(s.reserve, i, i+1)
			return w
		}
	}
	return nil
}

func (s *helperSlot) closeReserve() {
	for w := s.takeReserve(); w != nil; w = s.takeReserve() {
		w.Close()
	}
}

// keepHelped keeps a subflow over a helper as long as pipes to it come.
func (p *Primary) keepHelped(ctx context.Context, slot *helperSlot, w *pipe.Waiting) {
	var b backoff.Backoff
	for attempt := 0; w != nil; attempt++ {
		p.awaitHelper(ctx, slot, w)
		if slot.isRevoked() {
			w.Close()
		}
		joined := false
		l, err := p.helped(ctx, slot, w, attempt, &slot.link)
		if err == nil {
			p.mu.Lock()
			slot.attempt = attempt
			p.mu.Unlock()
			attempt = -1
			p.troubles.set(p.nameOf(slot), nil)
			p.troubles.joined(l.peer)
			p.troubles.joined(w.Peer())
			b.Reset()
			joined, err = true, p.tend(ctx, slot, l)
		}
		w.Close()
		p.mu.Lock()
		slot.link = nil
		p.mu.Unlock()
		if ctx.Err() == nil {
			p.troubles.set(p.nameOf(slot), err)
		}
		if !joined && !errors.Is(err, errRestarted) {
			p.demand.backOff(ctx, err, &b, slot.revoked)
		}
		p.mu.Lock()
		if ctx.Err() != nil || slot.isRevoked() {
			slot.closeReserve()
		}
		if w = slot.takeReserve(); w == nil {
			slot.kept = false // its next call makes a keeper again
			p.rec.Add(trace.Event{Kind: trace.DeviceDown, Device: slot.name})
		}
		if slot.isRevoked() {
			p.troubles.forget(slot.name)
		}
		p.mu.Unlock()
	}
}

// renaming is a helper that has another name from now on.
type renaming struct {
	slot *helperSlot
	to   string
}

// rename gives helpers other names wherever they are told of: all at once, since
// one may have got what another was called. Mu is held.
func (p *Primary) rename(list []renaming) {
	e := p.sessions.current().e
	steps := make([]renaming, 0, 2*len(list))
	for i, r := range list {
		steps = append(steps, renaming{r.slot, fmt.Sprintf(" %d", i)}) // which is no name
	}
	for _, r := range append(steps, list...) {
		e.RenameHelper(r.slot.name, r.to)
		p.troubles.rename(r.slot.name, r.to)
		r.slot.name = r.to
	}
}

// nameOf is what a helper is called now.
func (p *Primary) nameOf(s *helperSlot) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.name
}

// TrustChanged acts on the trust file after it was read again. Helpers that
// are not in it any more lose their pipes, and a server its subflows.
func (p *Primary) TrustChanged() {
	var renamed []renaming
	now := time.Now()
	defer func() { p.review(now) }()
	p.mu.Lock()
	for key, slot := range p.helpers {
		if !p.trust.Allowed(identity.RoleHelper)(key) {
			delete(p.helpers, key)
			p.standings.forgetHelper(key)
			close(slot.revoked)
			p.log.Info("helper is trusted no longer", "helper", slot.name)
			slot.closeReserve()
			continue
		}
		peer, ok := p.trust.Lookup(key)
		if ok && peer.Name != slot.name {
			renamed = append(renamed, renaming{slot, peer.Name})
		}
		if ok {
			p.standings.setHelper(key, peer.Name, peer.Paused, now)
		}
	}
	p.rename(renamed)
	p.demand.retryRefused()
	s, changed := p.sessions.current(), p.server.reload()
	for _, slot := range p.helpers { // of each a pipe waits, or will
		for _, w := range slot.reserve {
			if !p.ending {
				p.wg.Go(func() { w.Tell(p.trust.ServerAddresses) })
			}
		}
	}
	p.mu.Unlock()
	if changed {
		p.sessions.restart(s, "the server is trusted no longer")
	}
}

// helped makes a subflow over a waiting pipe, and keeps the pipe's Link in at,
// which Primary.mu guards.
func (p *Primary) helped(ctx context.Context, slot *helperSlot, w *pipe.Waiting, attempt int, at **pipe.Link) (lane, error) {
	addr, err := p.server.address(attempt)
	if err != nil {
		return lane{}, err
	}
	w.Tell(p.trust.ServerAddresses) // if they have changed since it came
	link, err := w.Join(ctx, addr, time.Duration(p.cfg.Resume))
	if err != nil {
		server, _ := p.server.get()
		return lane{}, &identity.PeerError{Peer: w.Peer(), Err: explainJoin(p.nameOf(slot), server.Name, addr, err)}
	}
	key := w.Peer()
	link.OnFacts(func(f wire.Facts) { p.factsCame(key, f) })
	p.mu.Lock()
	*at = link
	p.mu.Unlock()
	l, err := p.join(ctx, link, link, slot, p.nameOf(slot))
	if err != nil {
		link.Close()
	}
	return l, err
}

// stallCheck is how often a pipe is looked at.
const stallCheck = 100 * time.Millisecond

// tend keeps a pipe under a helped subflow until that ends, and returns why it
// did: when the pipe breaks or stalls, the subflow goes on over one in reserve,
// the newest first, or over the next that comes; and over a better one when
// there is one. Second subflows by this helper end with it.
func (p *Primary) tend(ctx context.Context, slot *helperSlot, l lane) error {
	tick := time.NewTicker(stallCheck)
	defer tick.Stop()
	c := newChooser(p, slot, l)
	defer c.close()
	for wanted := false; ; {
		select {
		case err := <-l.down:
			return err
		case <-slot.revoked:
			l.s.e.Detach(l.id)
			p.sessions.end(l.s, l.id, nil)
			return nil
		case <-ctx.Done():
			return nil
		case <-l.link.Trouble():
			if wanted = true; l.link.Broken() {
				p.rec.Add(trace.Event{Kind: trace.PipeDown, Bond: l.s.id.String(), Path: uint32(l.id), Device: p.nameOf(slot), Reason: "it broke"})
			}
		case <-slot.fresh:
		case w := <-slot.wishes:
			w.done <- c.follow(ctx, w)
		case now := <-tick.C:
			wanted = wanted || l.link.Stalled(now)
			if !wanted && !l.link.Broken() {
				c.choose(ctx, now)
			}
		}
		for wanted && !l.link.Ended() {
			p.mu.Lock()
			w := slot.takeReserve()
			p.mu.Unlock()
			if w == nil {
				wanted = l.link.Broken() // the wish is old when the next one comes
				break
			}
			wanted = p.move(ctx, slot, l, w, "") != nil
		}
	}
}

// move has a subflow go on over another pipe, for a reason if the one in use is
// neither broken nor stalled.
func (p *Primary) move(ctx context.Context, slot *helperSlot, l lane, w *pipe.Waiting, reason string) error {
	before, by := l.link.Counts(), w.RemoteAddr()
	if err := l.link.Resume(ctx, w); err != nil {
		p.log.Info("pipe not resumed", "by", p.nameOf(slot), "path", l.id, "over", by, "err", err)
		return err
	}
	name := p.nameOf(slot)
	moved, after := trace.Event{Kind: trace.PipeMoved, Bond: l.s.id.String(), Path: uint32(l.id), Device: name,
		Text: by.String(), Reason: cmp.Or(reason, "change")}, l.link.Counts()
	if after.Resumed > before.Resumed {
		moved.Reason, moved.Gap = "break", after.Away-before.Away
	}
	p.log.Info("pipe goes on", "by", name, "path", l.id, "over", by, "reason", moved.Reason)
	p.rec.Add(moved)
	return nil
}

// factsCame takes what a helper reports of itself.
func (p *Primary) factsCame(helper identity.PublicKey, f wire.Facts) {
	if p.standings.setFacts(helper, f, time.Now()) {
		p.demand.retryRefused()
	}
}

// awaitHelper waits until a helper with a pipe that waits may carry something.
func (p *Primary) awaitHelper(ctx context.Context, slot *helperSlot, w *pipe.Waiting) {
	hold := func(w *pipe.Waiting) {
		p.mu.Lock()
		defer p.mu.Unlock()
		slot.held = w
	}
	hold(w)
	defer hold(nil)
	name := p.nameOf(slot)
	p.standings.await(ctx, carrier{helper: slot.key}, func(why error) { p.troubles.set(name, why) }, w.Done(), slot.revoked)
}

// reportTrouble sends waiting helpers the reason why this device has no server, or that
// it has one again.
func (p *Primary) reportTrouble() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return
	}
	for _, slot := range p.helpers {
		for _, w := range slot.waiting() {
			p.wg.Go(func() { w.SendTrouble(p.ownTrouble) })
		}
	}
}

// ownTrouble returns why no subflow of this device's own reaches the server; one without a
// text if one does, or it is not known.
func (p *Primary) ownTrouble() (f wire.Trouble) {
	server, missing := p.server.get()
	if missing != nil {
		return wire.Trouble{Code: wire.CodeUnknown, Text: missing.Error()}
	}
	if p.sessions.current().e.WithoutSubflow() == 0 {
		return f
	}
	p.mu.Lock()
	helpers := map[string]bool{}
	for _, slot := range p.helpers {
		helpers[slot.name] = true
	}
	p.mu.Unlock()
	for device, t := range p.troubles.list() {
		if t.Text != "" && !helpers[device] && (f.Text == "" || t.Text < f.Text) {
			f = wire.Trouble{Code: codes[t.Cause], Text: t.Text}
			if len(server.Addresses) > 0 {
				f.At = server.Addresses[0]
			}
		}
	}
	return f
}

// waiting are the pipes of a helper that wait. Mu is held.
func (s *helperSlot) waiting() []*pipe.Waiting {
	list := append([]*pipe.Waiting(nil), s.reserve...)
	if s.held != nil {
		list = append(list, s.held)
	}
	return list
}

// reportTo has a helper know, over a pipe that has just come.
func (p *Primary) reportTo(ctx context.Context, w *pipe.Waiting) {
	if ctx.Err() != nil {
		return
	}
	if p.ownTrouble().Text != "" {
		w.SendTrouble(p.ownTrouble)
	}
}

// noteCall counts a connection to the port for helpers, unless it came from this machine.
func (p *Primary) noteCall(from net.Addr, now time.Time) {
	if a, err := netip.ParseAddrPort(from.String()); err == nil && a.Addr().IsLoopback() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls.Count++
	p.calls.Last = now
}

// Calls returns the connections that reached the port for helpers; nil if there is none.
func (p *Primary) Calls() *api.Calls {
	if len(p.pipes) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls
	return &c
}
