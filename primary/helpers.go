package primary

import (
	"context"
	"net"

	"mpbond/fault"
	"mpbond/identity"
	"mpbond/pipe"
	"mpbond/tcp"
	"mpbond/wire"
)

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
	name := w.Name()
	if peer, ok := p.trust.Lookup(w.Peer()); ok {
		name = peer.Name
	}
	p.mu.Lock()
	slot := p.helpers[name]
	if slot == nil {
		slot = &helperSlot{}
		p.helpers[name] = slot
	}
	if slot.kept && ctx.Err() == nil {
		old := slot.reserve // the newest is the likeliest to work
		slot.reserve = w
		p.mu.Unlock()
		if old != nil {
			old.Close()
		}
		return
	}
	slot.kept = true
	p.mu.Unlock()
	p.keepHelped(ctx, name, slot, w)
}

// keepHelped keeps a subflow over a helper as long as pipes to it come.
func (p *Primary) keepHelped(ctx context.Context, name string, slot *helperSlot, w *pipe.Waiting) {
	var b backoff
	for attempt := 0; w != nil; attempt++ {
		down, err := p.helped(ctx, name, w, attempt)
		if err == nil {
			attempt = -1
			p.setError(name, nil)
			b.reset()
			select {
			case err = <-down:
			case <-ctx.Done():
			}
		} else if ctx.Err() == nil {
			b.wait(ctx)
		}
		w.Close()
		if ctx.Err() == nil {
			p.setError(name, err)
		}
		p.mu.Lock()
		w, slot.reserve = slot.reserve, nil
		if w != nil && ctx.Err() != nil {
			w.Close()
			w = nil
		}
		if w == nil {
			slot.kept = false // its next call makes a keeper again
		}
		p.mu.Unlock()
	}
}

// helped makes a subflow over a waiting pipe.
func (p *Primary) helped(ctx context.Context, name string, w *pipe.Waiting, attempt int) (<-chan error, error) {
	link, err := w.Join(ctx, p.address(attempt))
	if err != nil {
		return nil, err
	}
	return p.join(ctx, link, link, name)
}
