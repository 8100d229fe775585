package lte

import (
	"math"

	"mpbond/pbe/cell"
)

// How long users are remembered, in subframes: those that were believed, and those
// that were heard but not believed.
const (
	rememberUser  = 200
	rememberGuess = 20
)

// history remembers the users of a cell: a word by chance has the RNTI of somebody
// known, or of an earlier guess, as seldom as there are few of them.
type history struct {
	now     int
	heard   map[cell.RNTI]int   // when believed
	guessed map[cell.RNTI]guess // that were not
	chosen  []*finding          // of a subframe
}

// guess is when a word was heard that was not believed, and its odds.
type guess struct {
	at   int
	odds float64
}

func newHistory() *history {
	return &history{heard: map[cell.RNTI]int{}, guessed: map[cell.RNTI]guess{}}
}

// next goes on to the next subframe.
func (h *history) next() {
	if h.now++; h.now%rememberUser == 0 {
		for r, at := range h.heard {
			if h.now-at > rememberUser {
				delete(h.heard, r)
			}
		}
		for r, g := range h.guessed {
			if h.now-g.at > rememberGuess {
				delete(h.guessed, r)
			}
		}
	}
}

// believes tells whether a word is believed, and remembers it if not.
func (h *history) believes(c *finding) bool {
	r := c.dci.RNTI
	if c.sure {
		return true
	}
	if !r.User() {
		return false
	}
	if at, ok := h.heard[r]; ok && h.now-at <= rememberUser {
		return c.odds+rntiOdds-math.Log(float64(len(h.heard))) >= enough
	}
	g, ok := h.guessed[r]
	if ok && h.now-g.at > rememberGuess {
		ok = false
	}
	if ok && g.at != h.now && c.odds+g.odds+rntiOdds-math.Log(rememberGuess) >= enough {
		return true
	}
	if !ok || c.odds > g.odds {
		h.guessed[r] = guess{h.now, c.odds}
	}
	return false
}

// believe makes messages of those of a subframe's words that are believed: of each
// place the likeliest one, if no larger one holds another.
func (h *history) believe(found []finding) []DCI {
	h.next()
	h.chosen = h.chosen[:0]
	size := 0
	for len(found) > 0 {
		// The words of one place.
		first, n := &found[0].dci, 1
		for n < len(found) && found[n].dci.CCE == first.CCE && found[n].dci.Level == first.Level {
			n++
		}
		if best := h.best(found[:n]); best != nil {
			h.chosen = append(h.chosen, best)
			if best.dci.RNTI.User() {
				h.heard[best.dci.RNTI] = h.now
			}
			size += best.size
		}
		found = found[n:]
	}
	if size == 0 {
		return nil
	}
	out, payloads := make([]DCI, len(h.chosen)), make([]byte, 0, size)
	for i, c := range h.chosen {
		from := len(payloads)
		payloads = append(payloads, c.word[:c.size]...)
		out[i] = c.dci
		out[i].Payload = payloads[from:len(payloads):len(payloads)]
	}
	return out
}

// best is the word that is believed of those of one place: the one with the best odds.
func (h *history) best(found []finding) (best *finding) {
	for _, c := range h.chosen {
		// Places of one size do not overlap, and smaller ones lie in larger ones.
		if at := found[0].dci.CCE; at >= c.dci.CCE && at < c.dci.CCE+c.dci.Level {
			return nil
		}
	}
	for i := range found {
		if c := &found[i]; h.believes(c) && (best == nil || c.odds > best.odds) {
			best = c
		}
	}
	return best
}
