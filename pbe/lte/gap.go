// SPDX-License-Identifier: Apache-2.0

package lte

// Skip reports that n samples are missing before the next ones, as when a radio outruns its reader.
// The cell is kept across a gap of up to a second; after a longer one it is searched for again.
func (r *Receiver) Skip(n int64) {
	if n <= 0 {
		return
	}
	r.firstSample += int64(len(r.samples)) + n
	r.samples, r.searchedSamples = r.samples[:0], 0
	if r.decoder == nil {
		return
	}
	if n > int64(r.fftSize*subcarrierSpacing) {
		r.decoder = nil
		return
	}
	sub := int64(subframeLen(r.fftSize))
	if missing := r.firstSample - r.nextStart; missing > 0 {
		k := (missing + sub - 1) / sub
		r.nextStart += k * sub
		r.nextNumber = int((int64(r.nextNumber) + k) % 10240)
	}
}
