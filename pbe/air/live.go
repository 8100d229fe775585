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
	// chunkDuration is what is read at once.
	chunkDuration = 2 * time.Millisecond
	// maxQueuedChunks is how many pieces are held at most: what is later by more is of no use
	// to whoever paces by it.
	maxQueuedChunks = 100
	// quietTimeout is for how long nothing may come before that is told.
	quietTimeout = 5 * time.Second
	// lossReportInterval is how often losses are told.
	lossReportInterval = time.Second
	// burstBytes are what pipes and sockets hold: so much may come faster than a radio
	// writes it.
	burstBytes = 16 << 20
)

// chunk is a piece of samples, lost of which are missing before it.
type chunk struct {
	raw  []byte
	lost int64
	err  error // after raw
}

// liveReader brings samples from a live source to who decodes them.
type liveReader struct {
	carrier *carrier
	out     chan chunk
	free    chan []byte
	// paced: a file, as if it were live.
	paced bool
	// lossless: nothing is dropped. A file can wait, and who writes into a pipe is told
	// that it is full: a radio's program drops what it must by itself.
	lossless bool

	startTime   time.Time
	samplesRead int64 // samples
	sourceWaits bool  // the source is no radio: it can wait
}

// decodeLive decodes each carrier as its samples come.
func (l *Listener) decodeLive(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, c := range l.carriers {
		in := l.newLiveReader(c)
		go in.readLoop(ctx) // ends with its source, which may be a pipe that says nothing
		all.Go(func() { l.decodeLoop(ctx, c, in) })
	}
	all.Wait()
}

// newLiveReader is that of a carrier.
func (l *Listener) newLiveReader(c *carrier) *liveReader {
	return &liveReader{carrier: c, out: make(chan chunk, maxQueuedChunks), free: make(chan []byte, maxQueuedChunks+2), paced: c.isFile, lossless: c.isFile || c.isPipe && !l.cfg.DropLate}
}

// readLoop reads the source until it or ctx ends.
func (in *liveReader) readLoop(ctx context.Context) {
	size := in.carrier.Format.Size() * in.carrier.Rate * int(chunkDuration/time.Millisecond) / 1000
	var lost int64
	for {
		var buf []byte
		select {
		case buf = <-in.free:
		default:
			buf = make([]byte, size)
		}
		n, err := io.ReadFull(in.carrier.input, buf[:size])
		if in.startTime.IsZero() {
			in.startTime = time.Now()
		}
		in.samplesRead += int64(n / in.carrier.Format.Size())
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if in.paced && !in.waitForRealTime(ctx) {
			return
		}
		item := chunk{buf[:n], lost, err}
		for sent := false; !sent; {
			select {
			case in.out <- item:
				sent, lost = true, 0
			default:
				if err == nil && !in.lossless && !in.canWait() {
					lost += in.dropQueued()
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

// waitForRealTime waits until the samples that were read would have come from a radio.
func (in *liveReader) waitForRealTime(ctx context.Context) bool {
	t := time.NewTimer(time.Until(in.startTime.Add(in.sampleDuration(in.samplesRead))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// sampleDuration is how long so many samples take.
func (in *liveReader) sampleDuration(samples int64) time.Duration {
	return time.Duration(float64(samples) / float64(in.carrier.Rate) * float64(time.Second))
}

// canWait tells whether the source is ahead of its own time: then it is no radio, or
// one that is not late, and is read when there is room. One that was far ahead once
// can wait for ever.
func (in *liveReader) canWait() bool {
	since := time.Since(in.startTime)
	has := in.sampleDuration(in.samplesRead)
	if has > since*3/2 && in.samplesRead*int64(in.carrier.Format.Size()) > burstBytes {
		in.sourceWaits = true
	}
	return in.sourceWaits || has > since
}

// dropQueued throws all away that waits, and tells how many samples.
func (in *liveReader) dropQueued() (lost int64) {
	for {
		select {
		case old := <-in.out:
			lost += old.lost + int64(len(old.raw)/in.carrier.Format.Size())
			in.recycleBuffer(old.raw)
		default:
			return lost
		}
	}
}

// recycleBuffer takes memory back.
func (in *liveReader) recycleBuffer(raw []byte) {
	select {
	case in.free <- raw[:cap(raw)]:
	default:
	}
}

// decodeLoop decodes what comes until it or ctx ends.
func (l *Listener) decodeLoop(ctx context.Context, c *carrier, in *liveReader) {
	quiet := time.NewTimer(quietTimeout)
	defer quiet.Stop()
	defer c.decoder.finishAll()
	var lost int64 // not yet told
	var told time.Time
	doubted := false
	for {
		var next chunk
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			l.warn(c, errNoSamples)
			continue
		case next = <-in.out:
		}
		quiet.Reset(quietTimeout)
		before := c.receiver.Counts()
		c.feedSamples(next.raw, next.lost)
		in.recycleBuffer(next.raw)
		if len(in.out) == 0 {
			c.decoder.finishAll()
		}
		if next.err != nil {
			c.closeReceiver(next.err)
		}
		if !c.isFile {
			c.checkTrial(before)
		}
		if lost += next.lost; lost > 0 && time.Since(told) > lossReportInterval {
			l.warn(c, lossError(lost, c.Rate))
			lost, told = 0, time.Now()
		}
		l.deliverPending(c, next.lost)
		if next.err != nil {
			return
		}
		if !c.confirmed && !doubted && (c.samplesRead > int64(c.Rate) || len(c.early) >= maxEarlyBytes) {
			doubted = true
			why := c.explainNoCell(ctx)
			if ctx.Err() != nil {
				return
			}
			quiet.Reset(quietTimeout) // that took seconds
			l.warn(c, fault.New(fault.KindOf(why), why, "it is searched for further; "+fault.HintOf(why)))
		}
	}
}

// deliverPending hands on what a carrier has heard.
func (l *Listener) deliverPending(c *carrier, lost int64) {
	l.eachMu.Lock()
	defer l.eachMu.Unlock()
	l.mu.Lock()
	if lost > 0 {
		c.Lost += lost
		c.Gaps++
	}
	var out []*receivedSubframe
	if !c.onTrial {
		out = c.pending
	}
	for _, h := range out {
		l.assignNumber(c, h)
	}
	c.updateState()
	l.mu.Unlock()
	for _, h := range out {
		l.onSubframe(&h.Subframe)
	}
	clear(out)
	c.pending = c.pending[:len(c.pending)-len(out)]
}
