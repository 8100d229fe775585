// SPDX-License-Identifier: Apache-2.0

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
	// chunkDuration is the amount of samples per read.
	chunkDuration = 2 * time.Millisecond
	// maxQueuedChunks bounds the queue: older samples are useless for congestion control.
	maxQueuedChunks = 100
	// quietTimeout is how long a source may be silent before a warning.
	quietTimeout = 5 * time.Second
	// lossReportInterval is the least time between reports of lost samples.
	lossReportInterval = time.Second
	// burstBytes is the capacity of pipes and sockets: that much may arrive faster than a radio
	// sends it.
	burstBytes = 16 << 20
)

// chunk is a piece of samples.
type chunk struct {
	raw  []byte
	lost int64 // samples missing before raw
	err  error // after raw
}

// liveReader reads samples from a live source for the decoder.
type liveReader struct {
	carrier *carrier
	out     chan chunk
	free    chan []byte
	// paced reads a file as if it were live.
	paced bool
	// lossless means that nothing is dropped. Files block. Pipes get back-pressure; the radio's
	// program drops samples itself.
	lossless bool

	startTime   time.Time
	samplesRead int64 // samples
	sourceWaits bool  // the source is not a radio and can wait
}

// decodeLive decodes each carrier as its samples arrive.
func (l *Listener) decodeLive(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, c := range l.carriers {
		in := l.newLiveReader(c)
		go in.runSourceLoop(ctx) // ends with its source, which may be a silent pipe
		all.Go(func() { l.decodeLoop(ctx, c, in) })
	}
	all.Wait()
}

func (l *Listener) newLiveReader(c *carrier) *liveReader {
	return &liveReader{carrier: c, out: make(chan chunk, maxQueuedChunks), free: make(chan []byte, maxQueuedChunks+2),
		paced: c.isFile, lossless: c.isFile || c.isPipe && !l.cfg.DropLate}
}

// runSourceLoop reads the source until it or ctx ends.
func (in *liveReader) runSourceLoop(ctx context.Context) {
	size := in.carrier.Format.Size() * (in.carrier.Rate * int(chunkDuration/time.Millisecond) / 1000)
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
				if err == nil && !in.lossless && !in.sourceCanWait() {
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

// waitForRealTime waits until a radio would have sent the samples that were read. It returns false
// if ctx ends.
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

// sampleDuration returns the duration of that many samples.
func (in *liveReader) sampleDuration(samples int64) time.Duration {
	return time.Duration(float64(samples) / float64(in.carrier.Rate) * float64(time.Second))
}

// sourceCanWait reports whether the source is ahead of real time. It is then not a radio, or not
// late, and may block. A source that was once far ahead may always block.
func (in *liveReader) sourceCanWait() bool {
	since := time.Since(in.startTime)
	has := in.sampleDuration(in.samplesRead)
	if has > since*3/2 && in.samplesRead*int64(in.carrier.Format.Size()) > burstBytes {
		in.sourceWaits = true
	}
	return in.sourceWaits || has > since
}

// dropQueued discards the queue and returns the number of lost samples.
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

func (in *liveReader) recycleBuffer(raw []byte) {
	select {
	case in.free <- raw[:cap(raw)]:
	default:
	}
}

// decodeLoop decodes queued samples until the source or ctx ends.
func (l *Listener) decodeLoop(ctx context.Context, c *carrier, in *liveReader) {
	quiet := time.NewTimer(quietTimeout)
	defer quiet.Stop()
	defer c.decoder.finishAllJobs()
	var lost int64 // not yet reported
	var lastReport time.Time
	explained := false
	for {
		var next chunk
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			l.warnAboutCarrier(c, errNoSamples)
			continue
		case next = <-in.out:
		}
		quiet.Reset(quietTimeout)
		before := c.receiver.Counts()
		c.feedSamples(next.raw, next.lost)
		in.recycleBuffer(next.raw)
		if len(in.out) == 0 {
			c.decoder.finishAllJobs()
		}
		if next.err != nil {
			c.closeReceiver(next.err)
		}
		if !c.isFile {
			c.checkTrial(before)
		}
		if lost += next.lost; lost > 0 && time.Since(lastReport) > lossReportInterval {
			l.warnAboutCarrier(c, sampleLossError(lost, c.Rate))
			lost, lastReport = 0, time.Now()
		}
		l.deliverPending(c, next.lost)
		if next.err != nil {
			return
		}
		if !c.confirmed && !explained && (c.samplesRead > int64(c.Rate) || len(c.early) >= maxEarlyBytes) {
			explained = true
			reason := c.explainNoCell(ctx)
			if ctx.Err() != nil {
				return
			}
			quiet.Reset(quietTimeout) // the explanation took seconds
			l.warnAboutCarrier(c, fault.New(fault.KindOf(reason), reason, "the search continues; "+fault.HintOf(reason)))
		}
	}
}

// deliverPending delivers the pending subframes of a carrier.
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
