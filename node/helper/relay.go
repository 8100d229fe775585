package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// Tuning.
const (
	// The segments that are written at once: the whole packets that the hop
	// carries in segmentTime, within these bounds. On a pipe each is a TLS
	// record, of which the primary has nothing before it has all: large ones
	// save system calls, but on a slow pipe they come late.
	segmentTime   = 5 * time.Millisecond
	minSegment    = packetSize - frameOverhead
	maxSegment    = 64<<10 - wire.HeaderLen // one HOP_DATA, four TLS records
	packetSize    = 1448                    // what TCP usually carries in one
	frameOverhead = wire.HeaderLen + 22     // of HOP_DATA and TLS 1.3 (RFC 8446 section 5.2)
	// lingerTimeout is how long a relay waits for the second direction to end
	// after the first, once nothing moves.
	lingerTimeout = 5 * time.Second
	// refuseTimeout bounds the attempt to tell a hop why it ends.
	refuseTimeout = time.Second
)

// relay is the connection split of one subflow: two TCP control loops with a
// bounded buffer between them, in each direction.
//
//	up:   pipe -> read -> ring -> write -> HS-path
//	down: pipe <- write <- ring <- read <- HS-path
//
// A direction that ends in order is delivered to its last byte, and its end is
// passed on. When both have ended, or one hop fails, both hops are closed.
type relay struct {
	pipe          *pipe.Link
	hs            *pipe.HSPath
	up, down      direction
	hasPipeChoice func() bool // the primary has a choice of pipes; nil: it has not

	ended atomic.Int32 // directions
	once  sync.Once
	done  chan struct{}
	err   error // set before done is closed
}

// direction moves bytes one way.
type direction struct {
	in, out         pipe.Hop
	ring            *pipe.Ring
	keepsUntilAcked bool          // the ring holds bytes until the far end has them
	bytesRead       atomic.Uint64 // bytes that came from in
	segment         atomic.Int64  // how much to write at once
	rate            atomic.Int64  // of out, as last reported

	reporterAsleep atomic.Bool   // the reporter waits for data
	wake           chan struct{} // shared by both directions
}

func newRelay(p *pipe.Link, hs *pipe.HSPath, buffer int) *relay {
	r := &relay{pipe: p, hs: hs, done: make(chan struct{})}
	wake := make(chan struct{}, 1)
	r.up.initDirection(p, hs, buffer, wake)
	r.down.initDirection(hs, p, buffer, wake)
	r.down.keepsUntilAcked = true
	p.SetReplayRing(r.down.ring)
	return r
}

func (d *direction) initDirection(in, out pipe.Hop, buffer int, wake chan struct{}) {
	d.in, d.out, d.ring, d.wake = in, out, pipe.NewRing(buffer), wake
	d.segment.Store(minSegment)
}

// runRelay relays until both hops are closed, and returns nil if both directions
// ended in order. Close, from another goroutine, ends it early. Told, if not
// nil, is called with each report that leaves.
func (r *relay) runRelay(mode feedback, traceReport func(trace.Event)) error {
	var all sync.WaitGroup
	for _, d := range []*direction{&r.up, &r.down} {
		var both sync.WaitGroup
		both.Go(func() { r.fillRing(d) })
		both.Go(func() { r.drainRing(d) })
		all.Go(func() {
			both.Wait()
			if r.ended.Add(1) == 2 {
				r.closeRelay(nil)
			}
		})
	}
	all.Go(func() { newReporter(r, mode, traceReport).runReports() })
	all.Wait()
	return r.err
}

// fillRing reads into the ring, as long as there is room.
func (r *relay) fillRing(d *direction) {
	var waste []byte
	for {
		p := d.ring.WaitSpace()
		if p == nil { // the other hop takes nothing any more
			if waste == nil {
				waste = make([]byte, 16<<10)
				_ = d.in.SetReadDeadline(time.Now().Add(lingerTimeout))
			}
			p = waste // read on: to close with data unread would reset the connection, and cut what we still send on it
		}
		n, err := d.in.Read(p)
		if n > 0 {
			if waste == nil {
				d.ring.CommitFilled(n)
			}
			d.bytesRead.Add(uint64(n))
			if d.reporterAsleep.Load() {
				select {
				case d.wake <- struct{}{}:
				default:
				}
			}
		}
		if err == io.EOF {
			d.ring.EndFill()
			return
		}
		if err != nil {
			r.closeRelay(fmt.Errorf("reading from %s: %w", r.peerName(d.in), err))
			return
		}
	}
}

// drainRing writes from the ring, as late as it can: the backlog shall lie here,
// where it is counted, and not in the kernel.
func (r *relay) drainRing(d *direction) {
	for d.ring.WaitReady() {
		err := d.out.WaitWritable()
		if err == nil {
			b := d.ring.Peek(int(d.segment.Load()))
			if d.keepsUntilAcked {
				d.ring.MarkSent(len(b)) // the pipe may want it again
				_, err = d.out.Write(b)
			} else {
				_, err = d.out.Write(b)
				d.ring.MarkDropped(len(b))
			}
		}
		if err != nil {
			// The hop is gone, or its far end takes nothing more. Which, its
			// reader will find, after what has still come from there.
			d.ring.Kill()
			if d.keepsUntilAcked && r.pipe.HasEnded() {
				r.closeRelay(fmt.Errorf("writing to the primary: %w", err)) // nobody may be reading from it any more
			}
			return
		}
	}
	if d.ring.AllSent() {
		_ = d.out.CloseWrite() // a hop that fails here fails its reader too
	}
}

func (r *relay) peerName(h pipe.Hop) string {
	if h == r.pipe {
		return "the primary"
	}
	return "the server"
}

// closeRelay ends the relay at once. The first reason counts: nil if both
// directions have ended in order. Otherwise both ends are told.
func (r *relay) closeRelay(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
		r.up.ring.Kill()
		r.down.ring.Kill()
		if errors.As(err, new(capError)) {
			_ = r.hs.Abort() // before another byte comes by it
			go func() {      // ends by the deadline
				r.sendRefusal(r.pipe)
				r.pipe.Close()
			}()
			return
		}
		for _, h := range []pipe.Hop{r.hs, r.pipe} {
			if err != nil {
				r.sendRefusal(h)
			}
			h.Close()
		}
	})
}

// sendRefusal tells an end why the relay has ended.
func (r *relay) sendRefusal(h pipe.Hop) {
	f := refusalOf(r.err)
	_ = h.SetWriteDeadline(time.Now().Add(refuseTimeout))
	_ = h.Refuse(f.Code, f.Text)
}

// refusalOf returns the REFUSE for both ends after err: what the server said, if it
// is the one who refused.
func refusalOf(err error) wire.Refuse {
	var f wire.Refuse
	switch {
	case errors.As(err, new(capError)):
		return wire.Refuse{Code: wire.CodeLimit, Text: err.Error()}
	case errors.Is(err, errSuspended), errors.Is(err, errPaused):
		return wire.Refuse{Code: wire.CodeLimit, Text: err.Error()}
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled):
		return wire.Refuse{Code: wire.CodeClosed, Text: "the helper is going away"}
	}
	return wire.Refuse{Code: wire.CodeConnReset, Text: "the helper lost the subflow: " + err.Error()}
}

// endReason is why a relay has ended.
func endReason(err error) string {
	if err == nil {
		return "both directions have ended"
	}
	return err.Error()
}
