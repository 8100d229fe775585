// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math/bits"
	"time"
)

// Delays summarises the one-way delays of packets over a period, from entering a link to leaving
// it. They include queueing, serialisation, propagation and the emulator's lateness.
type Delays struct {
	Packets int64         `json:"packets"`
	P50     time.Duration `json:"p50_ns"`
	P95     time.Duration `json:"p95_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
}

// A delayHist counts in buckets. The first delaySteps buckets are delayStep wide. Each following
// power of two has half as many buckets, so that a bucket is at most 1/64 of its delay wide. The
// last bucket counts everything above 68 s.
const (
	delayStep    = time.Microsecond
	delaySteps   = 128
	delayOctaves = 20
	delayBuckets = delaySteps + (delayOctaves-1)*delaySteps/2
)

// delayHist is a histogram of delays of fixed size.
type delayHist struct {
	count [delayBuckets]int64
	n     int64
	max   time.Duration
}

// countPacketDelay counts a delay.
func (h *delayHist) countPacketDelay(d time.Duration) {
	d = max(d, 0)
	h.count[delayBucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

// delayBucket returns the bucket of a delay.
func delayBucket(d time.Duration) int {
	v := uint64(d / delayStep)
	if v < delaySteps {
		return int(v)
	}
	octave := bits.Len64(v) - bits.Len64(delaySteps-1) // counted from 1
	return min(delaySteps+(octave-1)*delaySteps/2+int(v>>octave)-delaySteps/2, delayBuckets-1)
}

// delayBucketEdge returns the upper edge of a bucket.
func delayBucketEdge(i int) time.Duration {
	if i < delaySteps {
		return time.Duration(i+1) * delayStep
	}
	octave := (i-delaySteps)/(delaySteps/2) + 1
	return time.Duration((i-delaySteps)%(delaySteps/2)+delaySteps/2+1) << octave * delayStep
}

// quantileEdge returns the upper edge of the bucket of quantile q, at most the largest delay.
func (h *delayHist) quantileEdge(q float64) time.Duration {
	return min(delayBucketEdge(quantileBucket(h.count[:], h.n, q)), h.max)
}

// quantileBucket returns the bucket in which the quantile q of n values lies.
func quantileBucket(count []int64, n int64, q float64) int {
	need := int64(q*float64(n) + 0.999999)
	for i, c := range count {
		if need -= c; need <= 0 {
			return i
		}
	}
	return len(count) - 1
}

// summarizeDelays returns the quantiles of the histogram.
func (h *delayHist) summarizeDelays() Delays {
	return Delays{h.n, h.quantileEdge(.5), h.quantileEdge(.95), h.quantileEdge(.99), h.max}
}
