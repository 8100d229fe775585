package bond

import (
	"time"

	"mpbond/link/estimate"
)

// A path that carries what must not wait is express for a while: bulk keeps its
// queue short there. A queue that bulk has built, in the network or at a
// helper, cannot be overtaken, so being first in Next is not enough.
const (
	// expressFor is how long a path stays express after the last such byte.
	expressFor = time.Second
	// standing is how long the bytes that wait on an express path may last
	// before bulk gets a turn. Enough to keep a link busy between two looks at
	// its queue and while its rate varies (docs/datapath.md has the cost).
	standing = 25 * time.Millisecond
)

// extendLowLatency marks p as the path of something that must not wait.
func (p *subflow) extendLowLatency(t time.Time) {
	if t.After(p.lowLatencyUntil) {
		p.lowLatencyUntil = t
	}
}

// holds reports that bulk must not be given to p now, and asks for a look when
// the queue has become short.
func (b *Bond) holds(p *subflow, n estimate.Numbers, now time.Time) bool {
	over := n.Queued - standing
	if over <= 0 || !now.Before(p.lowLatencyUntil) {
		return false
	}
	b.timer.wakeAt(now.Add(max(over, time.Millisecond)))
	return true
}
