package board

import (
	"time"

	"mpbond/base/unit"
)

// SetUpload tells that items are sent, and that progress is what was handed over: some of it
// waits in buffers, here and at a helper, until the path has carried it. So rates are
// those of what was confirmed, and how much of an item has arrived is reckoned.
func (b *Board) SetUpload() { b.upload = true }

// noteConfirmed takes in how long an item took until the other end had it. One that is small
// beside those that are left says little of them: it took what a request takes.
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

// uploadRate is the rate in bytes a second: what was confirmed lately; less if not even as
// much was handed over since the job began, and that where nothing is confirmed yet.
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

// limitToArrived has jobs tell what has arrived of their items, as far as rates can say.
func (v *View) limitToArrived() {
	for i := range v.Running {
		j := &v.Running[i]
		got := estimateRate(v, v.Paths[j.Path]) * v.Now.Sub(j.StartTime).Seconds()
		j.Transferred = min(j.Transferred, unit.Bytes(got))
	}
}
