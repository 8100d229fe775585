package lte

import "mpbond/pbe/cell"

// How long users are remembered, in subframes: those that were believed, and those
// that were heard but not believed.
const (
	rememberUser  = 200
	rememberGuess = 20
)

// history remembers the users of a cell: a word whose RNTI is known needs no other
// proof, as one by chance would have another.
type history struct {
	now     int
	heard   map[cell.RNTI]int // when believed
	guessed map[cell.RNTI]int // when not
	chosen  []*finding        // of a subframe
}

func newHistory() *history {
	return &history{heard: map[cell.RNTI]int{}, guessed: map[cell.RNTI]int{}}
}

// next goes on to the next subframe.
func (h *history) next() {
	if h.now++; h.now%rememberUser == 0 {
		for r, at := range h.heard {
			if h.now-at > rememberUser {
				delete(h.heard, r)
			}
		}
		for r, at := range h.guessed {
			if h.now-at > rememberGuess {
				delete(h.guessed, r)
			}
		}
	}
}

// knows tells whether r was believed of late, or guessed in another subframe.
func (h *history) knows(r cell.RNTI) bool {
	if !r.User() {
		return true // one of a few
	}
	if at, ok := h.heard[r]; ok && h.now-at <= rememberUser {
		return true
	}
	at, ok := h.guessed[r]
	return ok && at != h.now && h.now-at <= rememberGuess
}

// believe makes messages of those of a subframe's words that are believed: of each
// place the one that explains most, if no larger one holds another.
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
			h.heard[best.dci.RNTI] = h.now
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

// best is the word that is believed of those of one place.
func (h *history) best(found []finding) (best *finding) {
	for _, c := range h.chosen {
		// Places of one size do not overlap, and smaller ones lie in larger ones.
		if at := found[0].dci.CCE; at >= c.dci.CCE && at < c.dci.CCE+c.dci.Level {
			return nil
		}
	}
	for i := range found {
		c := &found[i]
		if best != nil && c.dci.Agreement <= best.dci.Agreement {
			continue
		}
		if !c.sure && !h.knows(c.dci.RNTI) {
			h.guessed[c.dci.RNTI] = h.now
			continue
		}
		best = c
	}
	return best
}
