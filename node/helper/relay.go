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
	segmentTime = 5 * time.Millisecond
	minSegment  = packet - overhead
	maxSegment  = 64<<10 - wire.HeaderLen // one HOP_DATA, four TLS records
	packet      = 1448                    // what TCP usually carries in one
	overhead    = wire.HeaderLen + 22     // of HOP_DATA and TLS 1.3 (RFC 8446 section 5.2)
	// lingerTime is how long a relay waits for the second direction to end
	// after the first, once nothing moves.
	lingerTime = 5 * time.Second
	// partingTime bounds the attempt to tell a hop why it ends.
	partingTime = time.Second
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
	pipe     *pipe.Link
	hs       *pipe.HSPath
	up, down direction
	several  func() bool // the primary has a choice of pipes; nil: it has not

	ended atomic.Int32 // directions
	once  sync.Once
	done  chan struct{}
	err   error // set before done is closed
}

// direction moves bytes one way.
type direction struct {
	in, out pipe.Hop
	ring    *pipe.Ring
	kept    bool          // the ring holds bytes until the far end has them
	read    atomic.Uint64 // bytes that came from in
	segment atomic.Int64  // how much to write at once
	rate    atomic.Int64  // of out, as last reported

	asleep atomic.Bool   // the reporter waits for data
	wake   chan struct{} // shared by both directions
}

func newRelay(p *pipe.Link, hs *pipe.HSPath, buffer int) *relay {
	r := &relay{pipe: p, hs: hs, done: make(chan struct{})}
	wake := make(chan struct{}, 1)
	r.up.init(p, hs, buffer, wake)
	r.down.init(hs, p, buffer, wake)
	r.down.kept = true
	p.KeepIn(r.down.ring)
	return r
}

func (d *direction) init(in, out pipe.Hop, buffer int, wake chan struct{}) {
	d.in, d.out, d.ring, d.wake = in, out, pipe.NewRing(buffer), wake
	d.segment.Store(minSegment)
}

// run relays until both hops are closed, and returns nil if both directions
// ended in order. Close, from another goroutine, ends it early. Told, if not
// nil, is called with each report that leaves.
func (r *relay) run(mode feedback, told func(trace.Event)) error {
	var all sync.WaitGroup
	for _, d := range []*direction{&r.up, &r.down} {
		var both sync.WaitGroup
		both.Go(func() { r.fill(d) })
		both.Go(func() { r.empty(d) })
		all.Go(func() {
			both.Wait()
			if r.ended.Add(1) == 2 {
				r.close(nil)
			}
		})
	}
	all.Go(func() { newReporter(r, mode, told).run() })
	all.Wait()
	return r.err
}

// fill reads into the ring, as long as there is room.
func (r *relay) fill(d *direction) {
	var waste []byte
	for {
		p := d.ring.Space()
		if p == nil { // the other hop takes nothing any more
			if waste == nil {
				waste = make([]byte, 16<<10)
				_ = d.in.SetReadDeadline(time.Now().Add(lingerTime))
			}
			p = waste // read on: to close with data unread would reset the connection, and cut what we still send on it
		}
		n, err := d.in.Read(p)
		if n > 0 {
			if waste == nil {
				d.ring.Fill(n)
			}
			d.read.Add(uint64(n))
			if d.asleep.Load() {
				select {
				case d.wake <- struct{}{}:
				default:
				}
			}
		}
		if err == io.EOF {
			d.ring.End()
			return
		}
		if err != nil {
			r.close(fmt.Errorf("reading from %s: %w", r.name(d.in), err))
			return
		}
	}
}

// empty writes from the ring, as late as it can: the backlog shall lie here,
// where it is counted, and not in the kernel.
func (r *relay) empty(d *direction) {
	for d.ring.Ready() {
		err := d.out.WaitWritable()
		if err == nil {
			b := d.ring.Next(int(d.segment.Load()))
			if d.kept {
				d.ring.Give(len(b)) // the pipe may want it again
				_, err = d.out.Write(b)
			} else {
				_, err = d.out.Write(b)
				d.ring.Drop(len(b))
			}
		}
		if err != nil {
			// The hop is gone, or its far end takes nothing more. Which, its
			// reader will find, after what has still come from there.
			d.ring.Kill()
			if d.kept && r.pipe.Ended() {
				r.close(fmt.Errorf("writing to the primary: %w", err)) // nobody may be reading from it any more
			}
			return
		}
	}
	if d.ring.Delivered() {
		_ = d.out.CloseWrite() // a hop that fails here fails its reader too
	}
}

func (r *relay) name(h pipe.Hop) string {
	if h == r.pipe {
		return "the primary"
	}
	return "the server"
}

// close ends the relay at once. The first reason counts: nil if both
// directions have ended in order. Otherwise both ends are told.
func (r *relay) close(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
		r.up.ring.Kill()
		r.down.ring.Kill()
		if errors.As(err, new(capError)) {
			_ = r.hs.Abort() // before another byte comes by it
			go func() {      // ends by the deadline
				r.part(r.pipe)
				r.pipe.Close()
			}()
			return
		}
		for _, h := range []pipe.Hop{r.hs, r.pipe} {
			if err != nil {
				r.part(h)
			}
			h.Close()
		}
	})
}

// part tells an end why the relay has ended.
func (r *relay) part(h pipe.Hop) {
	f := refusalOf(r.err)
	_ = h.SetWriteDeadline(time.Now().Add(partingTime))
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

// ending is why a relay has ended.
func ending(err error) string {
	if err == nil {
		return "both directions have ended"
	}
	return err.Error()
}
