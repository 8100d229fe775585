package bond

import (
	"time"

	"mpbond/wire"
)

// Tuning of the watch for paths that are dead although this end has nothing in
// flight on them: in a download it is the sender who sees that nothing arrives,
// and only the receiver, the primary, can make a new subflow.
const (
	// quietAfter is how long nothing must have come on any path.
	quietAfter = time.Second
	// recently is how long after its last byte a path may be asked: so long its
	// radio is awake anyway (LTE's tail is about 10 s).
	recently = 5 * time.Second
)

// watchQuiet lets paths be asked for a sign of life: when all have been quiet
// while streams are open, those that carried bytes a moment ago, once; when a
// path is stuck, all others, once, to know which way is left.
func (b *Bond) watchQuiet(now time.Time) {
	if !b.cfg.Opens || len(b.streams) == 0 {
		return
	}
	var newest, trouble time.Time
	for _, p := range b.paths {
		if p.lastData.After(newest) {
			newest = p.lastData
		}
		if p.stuckAt.After(trouble) {
			trouble = p.stuckAt
		}
	}
	for _, p := range b.paths {
		if p.flight.len() > 0 {
			continue // what is in flight asks as well
		}
		hint := p.lastData.After(p.asked) && now.Sub(p.lastData) < recently
		if at := newest.Add(quietAfter); hint && now.Before(at) {
			b.wake(at)
		} else if hint || trouble.After(p.asked) {
			p.asked, p.askDue = now, true
		}
	}
}

// asking returns an idle path that is to be asked, or nil.
func (b *Bond) asking() *path {
	for _, p := range b.paths {
		if p.askDue && p.idle {
			return p
		}
	}
	return nil
}

// fillAsk appends the question.
func (p *path) fillAsk(buf []byte) []byte {
	if p.askDue {
		p.askDue = false
		at := len(buf)
		buf = wire.Append(buf, wire.Ping{})
		p.note(len(buf)-at, sentFrame{t: wire.TypePing})
	}
	return buf
}
