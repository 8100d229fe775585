// SPDX-License-Identifier: Apache-2.0

package lte

// The receiver removes the mean of the samples (DC offset), which direct-conversion radios add. It
// looks like a carrier without offset, and after frequency correction it leaks into all
// subcarriers. Cells send nothing there.
const (
	dcInitialSubframes  = 10 // subframes before the first mean; a search needs more
	dcAveragedSubframes = 50 // subframes that are averaged after that
)

// dcOffset is the mean of all samples, measured in blocks as long as a subframe, counted from the
// first sample.
type dcOffset struct {
	mean      complex128
	sum       complex128 // of the current block, without mean
	n         int        // samples in the current block
	stretches int        // blocks in the mean
}

// removeFrom removes the mean from samples[from:]. The first blocks are corrected when they are
// complete. NaN and infinite samples become 0.
func (c *dcOffset) removeFrom(samples []complex64, from, stretch int) {
	for from < len(samples) {
		part := samples[from:min(from+stretch-c.n, len(samples))]
		from += len(part)
		var mean complex64
		if c.stretches >= dcInitialSubframes {
			mean = complex64(c.mean)
		}
		var re, im float64
		for i, s := range part {
			if s -= mean; real(s)*0 != 0 || imag(s)*0 != 0 { // also true for infinities
				s = 0
			}
			part[i] = s
			re += float64(real(s))
			im += float64(imag(s))
		}
		c.sum += complex(re, im)
		if c.n += len(part); c.n == stretch {
			c.updateMean(samples[:from])
		}
	}
}

// updateMean completes a block that ends with samples.
func (c *dcOffset) updateMean(samples []complex64) {
	mean := complex(real(c.sum)/float64(c.n), imag(c.sum)/float64(c.n))
	c.sum, c.n = 0, 0
	if c.stretches < dcInitialSubframes {
		mean -= c.mean // nothing was removed yet
	}
	if c.stretches < dcAveragedSubframes {
		c.stretches++
	}
	c.mean += complex(1/float64(c.stretches), 0) * mean
	if c.stretches == dcInitialSubframes {
		first := complex64(c.mean)
		for i := range samples {
			samples[i] -= first
		}
	}
}
