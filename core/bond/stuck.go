package bond

import (
	"time"

	"mpbond/link/wire"
)

// Tuning of the watch for paths that are dead although this end has nothing in
// flight on them: in a download it is the sender who sees that nothing arrives,
// and only the receiver, the primary, can make a new subflow.
const (
	// quietAfter is how long nothing must have come on any path, at least. The
	// pauses of what a stream brings are no reason to ask: quietMost bounds how
	// long is waited for their sake.
	quietAfter, quietMost = time.Second, 4 * time.Second
	// recently is how long after its last byte a path may be asked: so long its
	// radio is awake anyway (LTE's tail is about 10 s).
	recently = 5 * time.Second
)

// brought tells that path p has brought new bytes.
func (b *Bond) brought(p *subflow, now time.Time) {
	if pause := now.Sub(b.newestData); pause >= recently {
		b.pause = 0 // a new beginning
	} else if pause > minSilence && !b.seenStuck.After(b.newestData) {
		b.pause = pause // else it was a stall, of which nothing is to be expected
	}
	p.lastData, b.newestData = now, now
	if b.cfg.Opens {
		b.timer.wakeAt(now.Add(quietAfter))
	}
}

// watchQuiet lets paths be asked for a sign of life: when all have been quiet
// while streams are open, those that carried bytes a moment ago, once; when a
// path is stuck, all others that bring no bytes, once, to know which way is left.
//
// Each question wakes the radios of its path. So of paths that brought bytes to
// the end one is asked: if another died with bytes in flight, the far end sends
// them again by this one, within two seconds or so, and then the other is asked
// too, since it brought none of those. If copies of all of them had come before,
// nothing is sent again, and it is asked after the next bytes only, if those come
// soon. And one that was well after its last byte is not asked in a pause up to a
// quarter longer than the newest one, as between the segments of a video.
func (b *Bond) watchQuiet(now time.Time) {
	if !b.cfg.Opens || len(b.streams) == 0 {
		return
	}
	var trouble time.Time
	for _, p := range b.subflows.list {
		if p.stalledSince.After(trouble) {
			trouble = p.stalledSince
		}
	}
	one := b.spokesman()
	for _, p := range b.subflows.list {
		if p.inFlight.len() > 0 {
			continue // what is in flight asks as well
		}
		var at time.Time
		switch {
		case trouble.After(p.lastProbeTime) && !p.lastData.After(trouble):
			at = p.lastData.Add(minSilence) // until then it may be bringing bytes
		case p.lastData.After(p.lastProbeTime) && now.Sub(p.lastData) < recently && (p == one || !b.lasted(p)):
			at = b.newestData.Add(b.quiet(p))
		default:
			continue
		}
		if now.Before(at) {
			b.timer.wakeAt(at)
		} else {
			p.lastProbeTime, p.probeDue = now, true
		}
	}
}

// quiet is how long nothing must have come before path p is asked.
func (b *Bond) quiet(p *subflow) time.Duration {
	if b.lasted(p) && p.confirmedAlive() {
		return max(quietAfter, min(b.pause*5/4, quietMost))
	}
	return quietAfter
}

// lasted reports whether a path brought bytes to the end, as far as can be told:
// since then the far end has not had the time to find it silent.
func (b *Bond) lasted(p *subflow) bool { return b.newestData.Sub(p.lastData) < minSilence }

// spokesman is the path that is asked for all that lasted: a direct one if there
// is one, since no helper is woken then, and of those the one that brought the
// newest bytes. It is nil if there is none.
func (b *Bond) spokesman() (one *subflow) {
	for _, p := range b.subflows.list {
		if b.lasted(p) && (one == nil || one.est.Helped && !p.est.Helped ||
			one.est.Helped == p.est.Helped && p.lastData.After(one.lastData)) {
			one = p
		}
	}
	return one
}

// confirmedAlive reports whether all that was sent on a direct path, the last thing not
// before its last bytes came, is known to have arrived: both its directions worked then.
func (p *subflow) confirmedAlive() bool {
	return !p.est.Helped && !p.lastSent.Before(p.lastData) && p.est.Hop().Queue == 0
}

// appendProbe appends the question.
func (p *subflow) appendProbe(buf []byte) []byte {
	if p.probeDue {
		p.probeDue = false
		at := len(buf)
		buf = wire.Append(buf, wire.Ping{})
		p.noteFrame(len(buf)-at, sentFrame{frameType: wire.TypePing})
	}
	return buf
}
