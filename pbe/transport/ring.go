// SPDX-License-Identifier: Apache-2.0

package transport

// ringBuffer holds the bytes of a stream from offset base. Its memory grows in powers of two. The
// caller bounds it. It is not safe for concurrent use.
type ringBuffer struct {
	buf  []byte // its length is a power of two, or 0
	base uint64
}

// growToOffset makes room for the bytes up to offset end.
func (r *ringBuffer) growToOffset(end uint64) {
	need := int(end - r.base)
	if need <= len(r.buf) {
		return
	}
	size := max(16<<10, len(r.buf))
	for size < need {
		size *= 2
	}
	b := make([]byte, size)
	if n := len(r.buf); n > 0 {
		for i := 0; i < n; {
			at := r.base + uint64(i)
			from := r.buf[int(at)&(n-1):]
			to := b[int(at)&(size-1):]
			i += copy(to, from[:min(len(from), n-i)])
		}
	}
	r.buf = b
}

// copyToOffset copies p to offset at. grow must have made room for it.
func (r *ringBuffer) copyToOffset(at uint64, p []byte) {
	for len(p) > 0 {
		n := copy(r.buf[int(at)&(len(r.buf)-1):], p)
		p, at = p[n:], at+uint64(n)
	}
}

// copyFromOffset fills p with the bytes from offset at.
func (r *ringBuffer) copyFromOffset(at uint64, p []byte) {
	for len(p) > 0 {
		n := copy(p, r.buf[int(at)&(len(r.buf)-1):])
		p, at = p[n:], at+uint64(n)
	}
}
