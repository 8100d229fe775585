// SPDX-License-Identifier: Apache-2.0

package board

import (
	"time"

	"mpbond/base/unit"
)

// SetUpload declares that items are uploaded. Then reported progress means handed-over bytes: some
// of them wait in buffers, here and at a helper. So rates are those of confirmed items, and arrived
// bytes are estimated.
func (b *Board) SetUpload() { b.upload = true }

// noteConfirmed records how long an item took until the receiver confirmed it. An item that is
// small compared with the remaining ones has little weight: it took mainly the latency of a
// request.
func (b *Board) noteConfirmed(p *path, j *Job, took time.Duration) {
	if took <= 0 || j.Item.Size() <= 0 {
		return
	}
	size := float64(j.Item.Size())
	largest := j.Item.Size()
	for _, i := range b.waiting {
		largest = max(largest, i.Size())
	}
	for _, o := range b.jobs {
		largest = max(largest, o.Item.Size())
	}
	rate, weight := size/took.Seconds(), newestWeight*size/float64(largest)
	if !p.rateConfirmed {
		p.rate, p.rateConfirmed, weight = rate, true, 1
	}
	p.rate += weight * (rate - p.rate)
}

// uploadRate returns the rate in bytes per second: that of recently confirmed items, or less if
// even less was handed over since the job began. Without a confirmation it is the rate of what was
// handed over.
func (p *path) uploadRate(now time.Time) float64 {
	j := p.job
	if j == nil || j.Transferred == 0 || now.Sub(j.StartTime) < answerTimeout {
		return p.rate
	}
	handed := float64(j.Transferred) / now.Sub(j.StartTime).Seconds()
	if p.rateConfirmed {
		return min(p.rate, handed)
	}
	return handed
}

// limitToArrived limits the progress of jobs to what can have arrived at the estimated rates.
func (v *View) limitToArrived() {
	for i := range v.Running {
		j := &v.Running[i]
		got := estimateRate(v, v.Paths[j.Path]) * v.Now.Sub(j.StartTime).Seconds()
		j.Transferred = min(j.Transferred, unit.Bytes(got))
	}
}
