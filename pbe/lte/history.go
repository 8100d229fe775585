// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"

	"mpbond/pbe/cell"
)

// How long users are remembered, in subframes: with accepted messages, and with rejected ones.
const (
	userMemory  = 200
	guessMemory = 20
)

// userHistory remembers the users of a cell. A chance word rarely has the RNTI of a known user or
// of an earlier guess, since these are few.
type userHistory struct {
	now        int
	acceptedAt map[cell.RNTI]int   // when a message was last accepted
	guesses    map[cell.RNTI]guess // the best rejected findings
	accepted   []*finding          // scratch: findings of one subframe
}

// guess is the subframe and the log odds of a rejected finding.
type guess struct {
	at      int
	logOdds float64
}

func newUserHistory() *userHistory {
	return &userHistory{acceptedAt: map[cell.RNTI]int{}, guesses: map[cell.RNTI]guess{}}
}

// advanceSubframe moves on to the next subframe and forgets old users.
func (h *userHistory) advanceSubframe() {
	if h.now++; h.now%userMemory == 0 {
		for r, at := range h.acceptedAt {
			if h.now-at > userMemory {
				delete(h.acceptedAt, r)
			}
		}
		for r, g := range h.guesses {
			if h.now-g.at > guessMemory {
				delete(h.guesses, r)
			}
		}
	}
}

// acceptFinding reports whether a finding is accepted, and remembers it otherwise.
func (h *userHistory) acceptFinding(c *finding) bool {
	r := c.dci.RNTI
	if c.isCertain {
		return true
	}
	if !r.IsUser() {
		return false
	}
	if at, ok := h.acceptedAt[r]; ok && h.now-at <= userMemory {
		return c.logOdds+rntiLogOdds-math.Log(float64(len(h.acceptedAt))) >= acceptOdds
	}
	g, ok := h.guesses[r]
	if ok && h.now-g.at > guessMemory {
		ok = false
	}
	if ok && g.at != h.now && c.logOdds+g.logOdds+rntiLogOdds-math.Log(guessMemory) >= acceptOdds {
		return true
	}
	if !ok || c.logOdds > g.logOdds {
		h.guesses[r] = guess{h.now, c.logOdds}
	}
	return false
}

// acceptFindings converts the accepted findings of a subframe into messages: the likeliest one of
// each location, unless it lies within an accepted larger one.
func (h *userHistory) acceptFindings(found []finding) []DCI {
	h.advanceSubframe()
	h.accepted = h.accepted[:0]
	size := 0
	for len(found) > 0 {
		// Findings of one location.
		first, n := &found[0].dci, 1
		for n < len(found) && found[n].dci.CCE == first.CCE && found[n].dci.Level == first.Level {
			n++
		}
		if best := h.bestFinding(found[:n]); best != nil {
			h.accepted = append(h.accepted, best)
			if best.dci.RNTI.IsUser() {
				h.acceptedAt[best.dci.RNTI] = h.now
			}
			size += best.size
		}
		found = found[n:]
	}
	if size == 0 {
		return nil
	}
	out, payloads := make([]DCI, len(h.accepted)), make([]byte, 0, size)
	for i, c := range h.accepted {
		from := len(payloads)
		payloads = append(payloads, c.word[:c.size]...)
		out[i] = c.dci
		out[i].Payload = payloads[from:len(payloads):len(payloads)]
	}
	return out
}

// bestFinding returns the accepted finding with the best odds at one location.
func (h *userHistory) bestFinding(found []finding) (best *finding) {
	for _, c := range h.accepted {
		// Locations of one size do not overlap, and smaller ones lie within larger ones.
		if at := found[0].dci.CCE; at >= c.dci.CCE && at < c.dci.CCE+c.dci.Level {
			return nil
		}
	}
	for i := range found {
		if c := &found[i]; h.acceptFinding(c) && (best == nil || c.logOdds > best.logOdds) {
			best = c
		}
	}
	return best
}
