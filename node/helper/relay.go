// SPDX-License-Identifier: Apache-2.0

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
	// Sizes of writes: the whole packets that the hop carries in segmentTime, within these bounds.
	// On a pipe each write is a TLS record, which the primary reads only when complete: large ones
	// save system calls, but arrive late on a slow pipe.
	segmentTime   = 5 * time.Millisecond
	minSegment    = packetSize - frameOverhead
	maxSegment    = 64<<10 - wire.HeaderLen // one HOP_DATA, four TLS records
	packetSize    = 1448                    // usual TCP payload of a packet
	frameOverhead = wire.HeaderLen + 22     // of HOP_DATA and TLS 1.3 (RFC 8446 section 5.2)
	// lingerTimeout is how long a relay waits for the second direction to end after the first, once
	// nothing moves.
	lingerTimeout = 5 * time.Second
	// refuseTimeout bounds the attempt to tell a hop why it ends.
	refuseTimeout = time.Second
)

// relay is the connection split of one subflow: two TCP control loops with a bounded buffer between
// them, in each direction.
//
//	up:   pipe -> read -> ring -> write -> HS-path
//	down: pipe <- write <- ring <- read <- HS-path
//
// A direction that ends in order is delivered to its last byte, and its end is passed on. When both
// have ended, or one hop fails, both hops are closed.
type relay struct {
	pipe          *pipe.Link
	hs            *pipe.HSPath
	up, down      direction
	hasPipeChoice func() bool // the primary has several pipes; nil: it has not

	ended atomic.Int32 // number of ended directions
	once  sync.Once
	done  chan struct{}
	err   error // set before done is closed
}

// direction moves bytes one way.
type direction struct {
	in, out         pipe.Hop
	ring            *pipe.Ring
	keepsUntilAcked bool          // the ring keeps bytes until the far end has them
	bytesRead       atomic.Uint64 // from in
	segment         atomic.Int64  // size of a write
	rate            atomic.Int64  // of out, as last reported

	reporterAsleep atomic.Bool   // the reporter waits for data
	wake           chan struct{} // shared by both directions
}

// newRelay returns a relay between a pipe and an HS-path, with a buffer of that size in each
// direction. It does not run yet.
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

// relayBothWays relays until both hops are closed. It returns nil if both directions ended in
// order. closeRelay, from another goroutine, ends it early. traceReport, if not nil, gets each sent
// report.
func (r *relay) relayBothWays(mode feedback, traceReport func(trace.Event)) error {
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
			d.wakeReporter()
		})
	}
	all.Go(func() { newReporter(r, mode, traceReport).runReports() })
	all.Wait()
	return r.err
}

// wakeReporter ends the sleep of the reporter.
func (d *direction) wakeReporter() {
	select {
	case d.wake <- struct{}{}:
	default: // it is about to wake
	}
}

// fillRing reads into the ring while there is room.
func (r *relay) fillRing(d *direction) {
	var waste []byte
	for {
		p := d.ring.WaitSpace()
		if p == nil { // the other hop accepts nothing more
			if waste == nil {
				waste = make([]byte, 16<<10)
				_ = d.in.SetReadDeadline(time.Now().Add(lingerTimeout))
			}
			p = waste // read on: closing with unread data would reset the connection and cut what we still send on it
		}
		n, err := d.in.Read(p)
		if n > 0 {
			if waste == nil {
				d.ring.CommitFilled(n)
			}
			d.bytesRead.Add(uint64(n))
			if d.reporterAsleep.Load() {
				d.wakeReporter()
			}
		}
		if err == io.EOF {
			d.ring.EndFill()
			return
		}
		if err != nil {
			r.closeRelay(fmt.Errorf("reading from %s: %w", r.hopPeerName(d.in), err))
			return
		}
	}
}

// drainRing writes from the ring as late as it can, so that the backlog stays in the ring, where it
// is counted, and not in the kernel.
func (r *relay) drainRing(d *direction) {
	for d.ring.WaitReady() {
		err := d.out.WaitWritable()
		if err == nil {
			b := d.ring.Peek(int(d.segment.Load()))
			if d.keepsUntilAcked {
				d.ring.MarkSent(len(b)) // the pipe may need it again
				_, err = d.out.Write(b)
			} else {
				_, err = d.out.Write(b)
				d.ring.MarkDropped(len(b))
			}
		}
		if err != nil {
			// The hop failed, or its far end accepts nothing more. Its reader finds out which,
			// after all received data.
			d.ring.Kill()
			if d.keepsUntilAcked && r.pipe.HasEnded() {
				r.closeRelay(fmt.Errorf("writing to the primary: %w", err)) // there may be no reader left
			}
			return
		}
	}
	if d.ring.AllSent() {
		_ = d.out.CloseWrite() // a hop that fails here fails its reader too
	}
}

func (r *relay) hopPeerName(h pipe.Hop) string {
	if h == r.pipe {
		return "the primary"
	}
	return "the server"
}

// closeRelay ends the relay at once. The first reason counts; nil means that both directions ended
// in order. Otherwise it sends the reason to both ends.
func (r *relay) closeRelay(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
		r.up.ring.Kill()
		r.down.ring.Kill()
		if errors.As(err, new(capError)) {
			_ = r.hs.Abort() // no further byte may arrive
			go func() {      // ends by the deadline
				r.sendRelayRefusal(r.pipe)
				r.pipe.Close()
			}()
			return
		}
		for _, h := range []pipe.Hop{r.hs, r.pipe} {
			if err != nil {
				r.sendRelayRefusal(h)
			}
			h.Close()
		}
	})
}

// sendRelayRefusal tells an end why the relay has ended.
func (r *relay) sendRelayRefusal(h pipe.Hop) {
	f := refusalOfError(r.err)
	_ = h.SetWriteDeadline(time.Now().Add(refuseTimeout))
	_ = h.Refuse(f.Code, f.Text)
}

// refusalOfError returns the REFUSE for both ends after err. If the server refused, it is the
// server's.
func refusalOfError(err error) wire.Refuse {
	var f wire.Refuse
	switch {
	case errors.As(err, new(capError)):
		return wire.Refuse{Code: wire.CodeLimit, Text: err.Error()}
	case errors.Is(err, errSuspended), errors.Is(err, errPaused):
		return wire.Refuse{Code: wire.CodeLimit, Text: err.Error()}
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled):
		return wire.Refuse{Code: wire.CodeClosed, Text: "the helper is shutting down"}
	}
	return wire.Refuse{Code: wire.CodeConnReset, Text: "the helper lost the subflow: " + err.Error()}
}

// relayEndReason returns why a relay has ended.
func relayEndReason(err error) string {
	if err == nil {
		return "both directions have ended"
	}
	return err.Error()
}
