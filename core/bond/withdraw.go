package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// A segment that Next has given for a subflow lies in this process until that
// subflow's writer begins to write it (Begun). What is recalled meanwhile is
// taken back: it was never sent, and need not be. From then on it cannot be,
// since TLS has numbered its records and the kernel may have a part of them.

// Begun tells that the segment which Next gave last for a subflow is about to
// be written. It reports false if the segment has been withdrawn: then it must
// not be written, and the subflow is idle as if there had been none.
func (b *Bond) Begun(id wire.PathID) bool {
	p := b.subflows.find(id)
	if p == nil || p.withdrawn {
		return false
	}
	p.unwritten = 0
	return true
}

// withdraw takes the segment of path p that its writer has not begun back, if
// all of it is stream bytes that have been recalled, and returns how many of
// them were still wanted.
func (b *Bond) withdraw(p *subflow) (n unit.Bytes) {
	all := p.inFlight.all()
	first := len(all)
	for first > 0 && all[first-1].end > p.bytesSent-uint64(p.unwritten) {
		if first--; !all[first].recalled {
			return 0
		}
	}
	if first == len(all) {
		return 0
	}
	var size unit.Bytes
	for _, f := range all[first:] {
		size += unit.Bytes(f.to - f.from)
		if f.stream.err == nil {
			f.stream.send.eachUnacked(span{f.from, f.to}, func(part span) { n += unit.Bytes(part.to - part.from) })
		}
	}
	p.inFlight.cut(len(all) - first)
	p.est.Unsent(p.unwritten)
	p.bytesSent -= uint64(p.unwritten)
	p.streamBytesSent -= size
	b.ledger.Given -= size
	p.unwritten, p.withdrawn = 0, true
	return n
}

// cut removes the newest n frames, which were recalled.
func (f *sentFrames) cut(n int) {
	for i := range n {
		s := &f.frames[len(f.frames)-1-i]
		if s.tooLate {
			f.tooLate--
		}
		s.stream = nil
	}
	f.frames = f.frames[:len(f.frames)-n]
}
