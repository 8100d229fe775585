// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"errors"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// errStalled is the cause of cancelled jobs.
var errStalled = fault.New(fault.Timeout, errors.New("no data received for too long"), "")

// Schedule implements transfer.Task. It leaves segments that no device can fetch now to the waiting
// player.
func (p *prefetcher) Schedule() (more bool) {
	for _, s := range p.queue.segments {
		if s.isHopeless(p.loop.Workers()) {
			p.leaveToPlayer(s, s.excluded.Reasons(p.loop.Workers()))
		}
	}
	return true
}

// StartJob implements transfer.Task.
func (p *prefetcher) StartJob(of *transfer.Job) transfer.JobRunner {
	s := p.queue.segments[of.Item.Object]
	j := &job{Job: of, prefetcher: p, segment: s, header: s.requestHeader.Clone(), from: of.Item.From, to: of.Item.To,
		ranged: s.split || s.to != board.Unknown}
	if s.split {
		j.ifRange = s.response.segmentValidator()
	}
	return j
}

// ReportProgress implements transfer.Task. It stops prefetching for players that are gone.
func (p *prefetcher) ReportProgress(now time.Time) {
	for _, r := range p.library.playbacks {
		if !r.lastRequest.IsZero() && now.Sub(r.lastRequest) > playerIdleTimeout {
			p.stopPlayback(r)
		}
	}
}

// GiveUp implements transfer.Task. It does nothing: players decide how long they wait.
func (p *prefetcher) GiveUp() {}

// OnEnd implements transfer.JobRunner.
func (j *job) OnEnd(err error) {
	p, s := j.prefetcher, j.segment
	switch refusal := (*transfer.Refusal)(nil); {
	case errors.Is(err, transfer.ErrDropped):
	case err == nil:
		j.finishItem()
	// the redirect was not for all devices
	case errors.As(err, &refusal) && refusal.Verdict == transfer.Redirect && (s.response != nil || s.leftToPlayer):
		p.leaveToPlayer(s, err)
	case errors.As(err, &refusal) && refusal.Verdict == transfer.Redirect:
		p.handleRedirect(s, time.Now())
	case errors.As(err, &refusal):
		if refusal.RetryAfter > 0 {
			// the device can still use other servers
			p.loop.Suspend(j.Worker, min(maxBackoff, refusal.RetryAfter), err)
		}
		p.loop.Exclude(s.object, s.excluded, j.Worker, err)
	default:
		p.loop.Suspend(j.Worker, 0, err)
	}
	if s.leadJob == j && !s.complete {
		s.leadJob = nil
		s.notifyReaders()
	}
	if !s.split && len(s.buf) == 0 && len(j.buf) > 0 { // only bytes that are given to a player are kept
		n := min(s.heldBytes, unit.Bytes(len(j.buf)))
		s.heldBytes, p.heldBytes = s.heldBytes-n, p.heldBytes-n
	}
	j.Worker.Wasted += j.Carried() - j.newBytes
}

// finishItem records that a job has fetched its item.
func (j *job) finishItem() {
	p, s := j.prefetcher, j.segment
	if !s.split {
		s.buf, s.size = j.buf, unit.Bytes(len(j.buf))
		s.response, j.newBytes = j.response, j.Carried()
		if n := unit.Bytes(len(j.buf)); n != s.heldBytes { // copies no longer count
			p.heldBytes, s.heldBytes = p.heldBytes-s.heldBytes+n, n
		}
	} else if !s.received.Contains(0, s.size) {
		return
	}
	s.complete = true
	s.playback.lastSize = s.size
	p.queue.dequeueSegment(s)
	s.notifyReaders()
}
