package primary

import (
	"context"
	"errors"
	"net"
	"slices"

	"mpbond/fault"
	"mpbond/identity"
	"mpbond/pipe"
	"mpbond/tcp"
	"mpbond/wire"
)

// helperSlot is a helper that calls: one subflow at a time, and a pipe in
// reserve. Its variables are guarded by Primary.mu.
type helperSlot struct {
	name    string
	revoked chan struct{}   // closed when the helper is trusted no longer
	kept    bool            // a goroutine keeps its subflow
	reserve []*pipe.Waiting // oldest first
}

func (s *helperSlot) isRevoked() bool {
	select {
	case <-s.revoked:
		return true
	default:
		return false
	}
}

// acceptPipes takes the calls of helpers until ctx ends.
func (p *Primary) acceptPipes(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.pipes.Close() })
	defer stop()
	slots := make(chan struct{}, maxHandshakes)
	for {
		c, err := p.pipes.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case slots <- struct{}{}:
			p.wg.Go(func() {
				w := p.handshake(ctx, c)
				<-slots
				if w != nil {
					p.useHelper(ctx, w)
				}
			})
		default:
			_ = c.Abort() // more half-open pipes than anybody has helpers
		}
	}
}

// handshake proves who calls; nil means that it was refused.
func (p *Primary) handshake(ctx context.Context, c *tcp.Conn) *pipe.Waiting {
	p.track(c, true)
	defer p.track(c, false)
	w, err := pipe.Accept(ctx, c, p.key.Server(wire.PipeALPN, p.trust.Allowed(identity.RoleHelper)))
	if err != nil {
		p.log.Info("pipe refused", "from", c.RemoteAddr(), "err", err, "hint", fault.HintOf(err))
		c.Close()
		return nil
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
// keeper if there is none. A helper carries one subflow; its next pipe waits
// in reserve, so that a broken one is replaced at once.
func (p *Primary) useHelper(ctx context.Context, w *pipe.Waiting) {
	p.mu.Lock()
	peer, ok := p.trust.Lookup(w.Peer())
	if !ok || !peer.Is(identity.RoleHelper) || p.ending { // any more
		p.mu.Unlock()
		w.Close()
		return
	}
	slot := p.helpers[w.Peer()]
	if slot == nil {
		slot = &helperSlot{name: peer.Name, revoked: make(chan struct{})}
		p.helpers[w.Peer()] = slot
	}
	if slot.kept {
		slot.addReserve(w)
		p.mu.Unlock()
		return
	}
	slot.kept = true
	p.mu.Unlock()
	p.keepHelped(ctx, slot, w)
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

func (s *helperSlot) closeReserve() {
	for w := s.takeReserve(); w != nil; w = s.takeReserve() {
		w.Close()
	}
}

// keepHelped keeps a subflow over a helper as long as pipes to it come.
func (p *Primary) keepHelped(ctx context.Context, slot *helperSlot, w *pipe.Waiting) {
	name := slot.name
	var b backoff
	for attempt := 0; w != nil; attempt++ {
		l, err := p.helped(ctx, name, w, attempt)
		if err == nil {
			attempt = -1
			p.setError(name, nil)
			b.reset()
			select {
			case err = <-l.down:
			case <-slot.revoked:
				l.s.e.Detach(l.id)
				p.ended(l.s, l.id, nil)
			case <-ctx.Done():
			}
		} else if !errors.Is(err, errRestarted) {
			p.rest(ctx, &b)
		}
		w.Close()
		if ctx.Err() == nil {
			p.setError(name, err)
		}
		p.mu.Lock()
		if ctx.Err() != nil || slot.isRevoked() {
			slot.closeReserve()
		}
		if w = slot.takeReserve(); w == nil {
			slot.kept = false // its next call makes a keeper again
		}
		if slot.isRevoked() {
			delete(p.errs, name)
		}
		p.mu.Unlock()
	}
}

// TrustChanged acts on the trust file after it was read again. Helpers that
// are not in it any more lose their pipes, and a server its subflows.
func (p *Primary) TrustChanged() {
	p.mu.Lock()
	for key, slot := range p.helpers {
		if !p.trust.Allowed(identity.RoleHelper)(key) {
			delete(p.helpers, key)
			close(slot.revoked)
			p.log.Info("helper is trusted no longer", "helper", slot.name)
			slot.closeReserve()
		}
	}
	before := p.server.Key
	if now, ok := p.trust.Lookup(before); ok && now.Is(identity.RoleServer) && len(now.Addresses) > 0 {
		p.server, p.noPeer = now, nil
	} else {
		p.server, p.noPeer = findServer(p.cfg.Server, p.trust)
	}
	s, changed := p.cur, p.server.Key != before
	p.mu.Unlock()
	if changed {
		p.restart(s, "the server is trusted no longer")
	}
}

// helped makes a subflow over a waiting pipe.
func (p *Primary) helped(ctx context.Context, name string, w *pipe.Waiting, attempt int) (lane, error) {
	addr, err := p.address(attempt)
	if err != nil {
		return lane{}, err
	}
	link, err := w.Join(ctx, addr)
	if err != nil {
		return lane{}, err
	}
	return p.join(ctx, link, link, name)
}
