package lte

// The mean of the samples is taken out of them, as radios that convert straight to the
// middle add one: it looks like a carrier that is off by nothing, and after tuning it is
// in all subcarriers. No cell sends anything there.
const (
	dcInitialSubframes  = 10 // subframes whose mean is waited for; a search needs more
	dcAveragedSubframes = 50 // subframes that are averaged after that
)

// dcOffset is what all samples have in common, by means of stretches as long as a
// subframe, counted from the first sample on.
type dcOffset struct {
	mean      complex128
	sum       complex128 // of the stretch, without mean
	n         int        // of its samples
	stretches int        // stretches that mean is of
}

// removeFrom takes the mean out of the samples from the given one on; of the first
// stretches when they are whole. Those that are no numbers become silence.
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
			if s -= mean; real(s)*0 != 0 || imag(s)*0 != 0 { // of what is infinite too
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

// updateMean ends a stretch, with which samples end.
func (c *dcOffset) updateMean(samples []complex64) {
	mean := complex(real(c.sum)/float64(c.n), imag(c.sum)/float64(c.n))
	c.sum, c.n = 0, 0
	if c.stretches < dcInitialSubframes {
		mean -= c.mean // nothing was taken out
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
