package transport

// ring holds the bytes of a stream from offset base on, in memory that grows in
// steps up to a limit that the caller keeps to.
type ring struct {
	b    []byte // length a power of two, or none
	base uint64
}

// grow makes room for the bytes up to offset end.
func (r *ring) grow(end uint64) {
	need := int(end - r.base)
	if need <= len(r.b) {
		return
	}
	size := max(16<<10, len(r.b))
	for size < need {
		size *= 2
	}
	b := make([]byte, size)
	if n := len(r.b); n > 0 {
		for i := 0; i < n; {
			at := r.base + uint64(i)
			from := r.b[int(at)&(n-1):]
			to := b[int(at)&(size-1):]
			i += copy(to, from[:min(len(from), n-i)])
		}
	}
	r.b = b
}

// put copies p to offset at; grow was called for its end.
func (r *ring) put(at uint64, p []byte) {
	for len(p) > 0 {
		n := copy(r.b[int(at)&(len(r.b)-1):], p)
		p, at = p[n:], at+uint64(n)
	}
}

// get copies from offset at to p.
func (r *ring) get(at uint64, p []byte) {
	for len(p) > 0 {
		n := copy(p, r.b[int(at)&(len(r.b)-1):])
		p, at = p[n:], at+uint64(n)
	}
}
