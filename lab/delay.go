package lab

import (
	"math/bits"
	"time"
)

// Delays are those of packets from where they entered a link to where they left
// it, over a period: queue, serialisation, delay, and how late the emulator was.
type Delays struct {
	Packets int64         `json:"packets"`
	P50     time.Duration `json:"p50_ns"`
	P95     time.Duration `json:"p95_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
}

// A delayHist counts in buckets of 1/64 of the delay, from delayStep on: up to
// delaySteps of these each has one of its own, then each power of two has half as
// many. The last one has all above, 68 s.
const (
	delayStep    = time.Microsecond
	delaySteps   = 128
	delayOctaves = 20
	delayBuckets = delaySteps + (delayOctaves-1)*delaySteps/2
)

// delayHist is a histogram of delays, which takes no memory besides itself.
type delayHist struct {
	count [delayBuckets]int64
	n     int64
	max   time.Duration
}

func (h *delayHist) addDelay(d time.Duration) {
	d = max(d, 0)
	h.count[delayBucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

func delayBucket(d time.Duration) int {
	v := uint64(d / delayStep)
	if v < delaySteps {
		return int(v)
	}
	octave := bits.Len64(v) - bits.Len64(delaySteps-1) // from 1 on
	return min(delaySteps+(octave-1)*delaySteps/2+int(v>>octave)-delaySteps/2, delayBuckets-1)
}

// delayEdge is the upper edge of a bucket.
func delayEdge(i int) time.Duration {
	if i < delaySteps {
		return time.Duration(i+1) * delayStep
	}
	octave := (i-delaySteps)/(delaySteps/2) + 1
	return time.Duration((i-delaySteps)%(delaySteps/2)+delaySteps/2+1) << octave * delayStep
}

// quantileEdge returns the upper edge of the bucket in which q of all lie.
func (h *delayHist) quantileEdge(q float64) time.Duration {
	return min(delayEdge(quantileBucket(h.count[:], h.n, q)), h.max)
}

// quantileBucket is the bucket in which q of all n lie.
func quantileBucket(count []int64, n int64, q float64) int {
	need := int64(q*float64(n) + 0.999999)
	for i, c := range count {
		if need -= c; need <= 0 {
			return i
		}
	}
	return len(count) - 1
}

func (h *delayHist) summarize() Delays {
	return Delays{h.n, h.quantileEdge(.5), h.quantileEdge(.95), h.quantileEdge(.99), h.max}
}
