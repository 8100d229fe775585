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

// history remembers the users of a cell: a word whose RNTI is known needs no other
// proof, as one by chance would have another.
type history struct {
	now     int
	heard   map[cell.RNTI]int // when believed
	guessed map[cell.RNTI]int // when not
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

// convincing is the agreement from which on a word of n bits is believed of
// somebody unknown. The best word for noise alone agrees by the cube root of the
// code rate or a little less in the mean, and varies by .075 at level 1 (measured,
// 400 words of each size and level).
func convincing(n, level int) float64 {
	rate := float64(n) / float64(level*cceBits)
	return min(math.Pow(rate, 0.3)+1.5*0.075/math.Sqrt(float64(level)), 0.985)
}
