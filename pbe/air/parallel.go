// SPDX-License-Identifier: Apache-2.0

package air

import "mpbond/pbe/lte"

// parallelDecoder decodes subframes of one receiver concurrently and finishes them in order. It
// belongs to the goroutine that feeds the receiver.
type parallelDecoder struct {
	receiver *lte.Receiver
	maxJobs  int // concurrent jobs
	jobs     []decodeJob
}

// decodeJob is a subframe that is being decoded.
type decodeJob struct {
	task *lte.DecodeTask
	done chan struct{}
}

// newParallelDecoder makes r decode up to maxJobs subframes concurrently, if that is over one.
func newParallelDecoder(r *lte.Receiver, maxJobs int) *parallelDecoder {
	s := &parallelDecoder{receiver: r, maxJobs: maxJobs}
	if maxJobs > 1 {
		r.Dispatch = s.startDecodeJob
	}
	return s
}

// startDecodeJob decodes a task in a goroutine. If maxJobs are running it first finishes the
// oldest.
func (s *parallelDecoder) startDecodeJob(w *lte.DecodeTask) {
	for len(s.jobs) >= s.maxJobs {
		s.finishOldest()
	}
	g := decodeJob{w, make(chan struct{})}
	s.jobs = append(s.jobs, g)
	go func() {
		w.Decode()
		close(g.done)
	}()
}

// finishOldest waits for the oldest job and finishes it.
func (s *parallelDecoder) finishOldest() {
	g := s.jobs[0]
	<-g.done
	s.jobs = s.jobs[:copy(s.jobs, s.jobs[1:])]
	s.receiver.Finish(g.task)
}

// finishAllJobs waits for all jobs.
func (s *parallelDecoder) finishAllJobs() {
	for len(s.jobs) > 0 {
		s.finishOldest()
	}
}
