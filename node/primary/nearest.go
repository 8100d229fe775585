// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"mpbond/base/identity"
	"mpbond/control/fleet"
)

// Tuning of what a device remembers of the servers of its fleet.
const (
	// timeLife is how long a measured time counts. failureLife is that of no answer: the server may be back.
	timeLife, failureLife = 24 * time.Hour, 10 * time.Minute
	// otherNetwork is by how much a server must answer later than twice the remembered time to show that this
	// device is in another network.
	otherNetwork = 20 * time.Millisecond
	// exploreInterval and measureInterval are the least times between measurements beside a bond that works, while
	// there are regions of which no server was measured, and after that.
	exploreInterval, measureInterval = time.Minute, time.Hour
	// A bond that works goes to another server only if that is better by both of these.
	nearerFactor, nearerDelay = 1.5, 20 * time.Millisecond
)

// candidate is a server that may be chosen.
type candidate struct {
	peer   identity.Peer
	region string      // the server's own key if the list names none
	hint   *fleet.Hint // nil: not known
	rank   int         // lower ones are tried first
	// isNewRegion says that no server of its region was measured, and that it is the first of them to measure.
	isNewRegion bool
	isMeasured  bool          // its time is remembered
	score       time.Duration // expected or measured; less is better
}

// scoreOf returns the score of a server with that time: as in a queue, the delay grows with 1/(1 − load).
func (c candidate) scoreOf(took time.Duration) time.Duration {
	if c.hint == nil {
		return took
	}
	return time.Duration(float64(took) / (1 - min(max(c.hint.CPU, 0), 0.95)))
}

// serverTimes remembers how long handshakes with servers took, by key. It has no more entries than the fleet has
// servers, if forgetOthers is called. Not safe for concurrent use.
type serverTimes map[identity.PublicKey]serverTime

// serverTime is the time of the last handshake with a server.
type serverTime struct {
	took time.Duration // 0: it did not answer
	at   time.Time     // when the measurement began
}

// note notes the time of a handshake that began at a time, 0 for no answer. A time that is much longer than before
// shows that this device is in another network, or that its link is busy: then earlier times of all servers are
// forgotten, so that it looks for near ones again.
func (t serverTimes) note(key identity.PublicKey, took time.Duration, began time.Time) {
	if before, ok := t.timeOf(key, began); ok && before > 0 && took > 2*before+otherNetwork {
		maps.DeleteFunc(t, func(_ identity.PublicKey, m serverTime) bool { return m.at.Before(began) })
	}
	t[key] = serverTime{took, began}
}

// timeOf returns the remembered time of a server, 0 if it did not answer.
func (t serverTimes) timeOf(key identity.PublicKey, now time.Time) (took time.Duration, ok bool) {
	m, ok := t[key]
	life := timeLife
	if m.took == 0 {
		life = failureLife
	}
	return m.took, ok && now.Sub(m.at) < life
}

// forgetOthers forgets servers that are not among these.
func (t serverTimes) forgetOthers(list []candidate) {
	maps.DeleteFunc(t, func(key identity.PublicKey, _ serverTime) bool {
		return !slices.ContainsFunc(list, func(c candidate) bool { return c.peer.Key == key })
	})
}

// timesOfRegions returns the least remembered time of each region with a server that answered.
func (t serverTimes) timesOfRegions(list []candidate, now time.Time) map[string]time.Duration {
	least := map[string]time.Duration{}
	for _, c := range list {
		if took, ok := t.timeOf(c.peer.Key, now); ok && took > 0 {
			if other, ok := least[c.region]; !ok || took < other {
				least[c.region] = took
			}
		}
	}
	return least
}

// sortByNearness returns servers in the order in which they are measured, n at once. A server that was not measured is
// expected to be as near as the nearest of its region. The first n are the best of those and, as long as there are
// any, servers of regions that are not known; after that, one that was not measured. regions are from timesOfRegions.
// list is in random order and is overwritten.
func (t serverTimes) sortByNearness(list []candidate, regions map[string]time.Duration, n int,
	now time.Time) []candidate {
	var known, newRegions, rest, failed []candidate
	seen := map[string]bool{}
	for _, c := range list {
		took, isMeasured := t.timeOf(c.peer.Key, now)
		expected, isKnown := regions[c.region]
		c.isMeasured, c.isNewRegion = isMeasured, false
		switch {
		case isMeasured && took == 0:
			failed = append(failed, c)
		case isMeasured:
			c.score = c.scoreOf(took)
			known = append(known, c)
		case isKnown:
			c.score = c.scoreOf(expected)
			known = append(known, c)
		case !seen[c.region]:
			seen[c.region], c.isNewRegion = true, true
			newRegions = append(newRegions, c)
		default:
			rest = append(rest, c)
		}
	}
	slices.SortStableFunc(known, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.score, b.score), compareBool(b.isMeasured, a.isMeasured))
	})
	isNew := func(c candidate) bool { return !c.isMeasured }
	if i := slices.IndexFunc(known, isNew); len(newRegions) == 0 && i >= n && n > 1 {
		known = slices.Insert(slices.Delete(slices.Clone(known), i, i+1), n-1, known[i])
	}
	best := min(len(known), 1, n) // of those that are known, before new regions
	if len(newRegions) == 0 {
		best = len(known)
	}
	more := min(len(newRegions), n-min(best, n)) // new regions before the others
	return slices.Concat(known[:best], newRegions[:more], known[best:], newRegions[more:], rest, failed)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// keepSimilar returns those of measured servers whose scores hardly differ from the best one.
func keepSimilar(list []candidate) []candidate {
	if len(list) == 0 {
		return nil
	}
	best := slices.MinFunc(list, func(a, b candidate) int { return cmp.Compare(a.score, b.score) }).score
	limit := max(time.Duration(float64(best)*similarFactor), best+similarDelay)
	return slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.score > limit })
}

// listNearer returns those of measured servers that are worth a change from the one in use: none if that did not
// answer, which may be the loss of one packet.
func listNearer(list []candidate, current identity.PublicKey) []candidate {
	i := slices.IndexFunc(list, func(c candidate) bool { return c.peer.Key == current })
	if i < 0 {
		return nil
	}
	limit := min(time.Duration(float64(list[i].score)/nearerFactor), list[i].score-nearerDelay)
	return slices.DeleteFunc(keepSimilar(list), func(c candidate) bool { return c.score > limit })
}
