package lte

// Skip says that n samples are missing before the next that is fed, as where a radio
// was faster than its reader. The cell is followed over up to a second; after more it
// is searched for again.
func (r *Receiver) Skip(n int64) {
	if n <= 0 {
		return
	}
	r.at += int64(len(r.samples)) + n
	r.samples, r.tried = r.samples[:0], 0
	if r.decoder == nil {
		return
	}
	if n > int64(r.size*spacing) {
		r.decoder = nil
		return
	}
	sub := int64(subframeLen(r.size))
	if missing := r.at - r.next; missing > 0 {
		k := (missing + sub - 1) / sub
		r.next += k * sub
		r.number = int((int64(r.number) + k) % 10240)
	}
}
