package air

import (
	"context"
	"io"
	"sync"
	"time"

	"mpbond/base/fault"
)

// Tuning of live sources.
const (
	// piece is what is read at once.
	piece = 2 * time.Millisecond
	// waiting is how many pieces are held at most: what is later by more is of no use
	// to whoever paces by it.
	waiting = 100
	// quietFor is for how long nothing may come before that is told.
	quietFor = 5 * time.Second
	// tellEvery is how often losses are told.
	tellEvery = time.Second
	// bursts are what pipes and sockets hold: so much may come faster than a radio
	// writes it.
	bursts = 16 << 20
)

// chunk is a piece of samples, lost of which are missing before it.
type chunk struct {
	raw  []byte
	lost int64
	err  error // after raw
}

// inlet brings samples from a live source to who decodes them.
type inlet struct {
	c    *carrier
	out  chan chunk
	free chan []byte
	// paced: a file, as if it were live.
	paced bool
	// patient: nothing is dropped. A file can wait, and who writes into a pipe is told
	// that it is full: a radio's program drops what it must by itself.
	patient bool

	begin time.Time
	got   int64 // samples
	waits bool  // the source is no radio: it can wait
}

// apart decodes each carrier as its samples come.
func (l *Listener) apart(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, c := range l.carriers {
		in := l.inlet(c)
		go in.run(ctx) // ends with its source, which may be a pipe that says nothing
		all.Go(func() { l.follow(ctx, c, in) })
	}
	all.Wait()
}

// inlet is that of a carrier.
func (l *Listener) inlet(c *carrier) *inlet {
	return &inlet{c: c, out: make(chan chunk, waiting), free: make(chan []byte, waiting+2), paced: c.kept, patient: c.kept || c.pipe && !l.cfg.Fresh}
}

// run reads the source until it or ctx ends.
func (in *inlet) run(ctx context.Context) {
	size := in.c.Format.Size() * in.c.Rate * int(piece/time.Millisecond) / 1000
	var lost int64
	for {
		var buf []byte
		select {
		case buf = <-in.free:
		default:
			buf = make([]byte, size)
		}
		n, err := io.ReadFull(in.c.in, buf[:size])
		if in.begin.IsZero() {
			in.begin = time.Now()
		}
		in.got += int64(n / in.c.Format.Size())
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if in.paced && !in.pause(ctx) {
			return
		}
		item := chunk{buf[:n], lost, err}
		for sent := false; !sent; {
			select {
			case in.out <- item:
				sent, lost = true, 0
			default:
				if err == nil && !in.patient && !in.canWait() {
					lost += in.drop()
					item.lost = lost
					continue
				}
				select {
				case in.out <- item:
					sent, lost = true, 0
				case <-ctx.Done():
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// pause waits until the samples that were read would have come from a radio.
func (in *inlet) pause(ctx context.Context) bool {
	t := time.NewTimer(time.Until(in.begin.Add(in.time(in.got))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// time is how long so many samples take.
func (in *inlet) time(samples int64) time.Duration {
	return time.Duration(float64(samples) / float64(in.c.Rate) * float64(time.Second))
}

// canWait tells whether the source is ahead of its own time: then it is no radio, or
// one that is not late, and is read when there is room. One that was far ahead once
// can wait for ever.
func (in *inlet) canWait() bool {
	since := time.Since(in.begin)
	has := in.time(in.got)
	if has > since*3/2 && in.got*int64(in.c.Format.Size()) > bursts {
		in.waits = true
	}
	return in.waits || has > since
}

// drop throws all away that waits, and tells how many samples.
func (in *inlet) drop() (lost int64) {
	for {
		select {
		case old := <-in.out:
			lost += old.lost + int64(len(old.raw)/in.c.Format.Size())
			in.back(old.raw)
		default:
			return lost
		}
	}
}

// back takes memory back.
func (in *inlet) back(raw []byte) {
	select {
	case in.free <- raw[:cap(raw)]:
	default:
	}
}

// follow decodes what comes until it or ctx ends.
func (l *Listener) follow(ctx context.Context, c *carrier, in *inlet) {
	quiet := time.NewTimer(quietFor)
	defer quiet.Stop()
	defer c.spread.wait()
	var lost int64 // not yet told
	var told time.Time
	doubted := false
	for {
		var next chunk
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			l.tell(c, errQuiet)
			continue
		case next = <-in.out:
		}
		quiet.Reset(quietFor)
		before := c.receiver.Counts()
		c.feed(next.raw, next.lost)
		in.back(next.raw)
		if len(in.out) == 0 {
			c.spread.wait()
		}
		if next.err != nil {
			c.end(next.err)
		}
		if !c.kept {
			c.doubt(before)
		}
		if lost += next.lost; lost > 0 && time.Since(told) > tellEvery {
			l.tell(c, loss(lost, c.Rate))
			lost, told = 0, time.Now()
		}
		l.pass(c, next.lost)
		if next.err != nil {
			return
		}
		if !c.sure && !doubted && (c.taken > int64(c.Rate) || len(c.early) >= earlyBytes) {
			doubted = true
			why := c.why(ctx)
			if ctx.Err() != nil {
				return
			}
			quiet.Reset(quietFor) // that took seconds
			l.tell(c, fault.New(fault.KindOf(why), why, "it is searched for further; "+fault.HintOf(why)))
		}
	}
}

// pass hands on what a carrier has heard.
func (l *Listener) pass(c *carrier, lost int64) {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	if lost > 0 {
		c.Lost += lost
		c.Gaps++
	}
	var out []*heard
	if !c.trial {
		out = c.fresh
	}
	for _, h := range out {
		l.number(c, h)
	}
	c.update()
	l.mu.Unlock()
	for _, h := range out {
		l.each(&h.Subframe)
	}
	clear(out)
	c.fresh = c.fresh[:len(c.fresh)-len(out)]
}
