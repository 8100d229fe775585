package census

import "mpbond/pbe/cell"

// member is one user of a window.
type member struct {
	share           // sums within the window
	subframes int   // with something downlink
	heard     int64 // last
	data      bool  // it passed the user filter when that was last asked
}

// window is what users were given in the last subframes of one cell.
type window struct {
	length int64 // in subframes
	keep   int64 // for how many subframes who is heard no more stays, with nothing
	ring   [][]share
	users  map[cell.RNTI]*member
	data   int   // members that pass the user filter
	first  int64 // since the count began or began again
	last   int64
	heard  int // subframes within the window, heard
	was    []bool
	begun  bool
	swept  int64

	// passed is told who begins to pass the filter, if it is set.
	passed func(cell.RNTI)
}

func newWindow(length, keep int64) *window {
	return &window{length: length, keep: keep, ring: make([][]share, length), was: make([]bool, length), users: map[cell.RNTI]*member{}}
}

// reset forgets all.
func (w *window) reset() {
	w.empty()
	clear(w.users)
	w.begun = false
}

// empty takes everything out of the window; who is kept stays.
func (w *window) empty() {
	for i := range w.ring {
		w.ring[i], w.was[i] = w.ring[i][:0], false
	}
	for _, m := range w.users {
		m.share, m.subframes, m.data = share{user: m.user, format: m.format, mcs: m.mcs}, 0, false
	}
	if w.keep == 0 {
		clear(w.users)
	}
	w.data, w.heard = 0, 0
}

// add takes what users were given in the next subframe, a share for each. With a
// number that is not after the last the count has begun again, and so does the window.
func (w *window) add(number int64, shares []share) {
	if w.begun && number <= w.last {
		w.reset()
	}
	if !w.begun {
		w.begun, w.first, w.last, w.swept = true, number, number-1, number
	}
	if number-w.last >= w.length {
		w.empty()
		w.last = number - 1
	}
	for w.last < number {
		w.last++
		w.drop(w.last)
	}
	i := number % w.length
	w.ring[i], w.was[i] = append(w.ring[i][:0], shares...), true
	w.heard++
	for _, h := range shares {
		m := w.users[h.user]
		if m == nil {
			m = &member{share: share{user: h.user, mcs: noMCS}}
			w.users[h.user] = m
		}
		m.heard = number
		if h.mcs != noMCS || m.mcs == noMCS {
			m.mcs, m.format = h.mcs, h.format
		}
		w.count(m, h, 1)
	}
	if w.keep > 0 && number-w.swept >= w.length {
		w.sweep(number)
	}
}

// drop empties the slot that subframe number takes.
func (w *window) drop(number int64) {
	i := number % w.length
	if !w.was[i] {
		return
	}
	w.was[i] = false
	w.heard--
	for _, h := range w.ring[i] {
		m := w.users[h.user]
		w.count(m, h, -1)
		if w.keep == 0 && m.heard <= number-w.length {
			delete(w.users, h.user)
		}
	}
	w.ring[i] = w.ring[i][:0]
}

func (w *window) count(m *member, h share, sign int) {
	m.add(h, sign)
	if h.prb > 0 {
		m.subframes += sign
	}
	is := cell.Data(m.subframes, m.prb)
	if is == m.data {
		return
	}
	if m.data = is; !is {
		w.data--
		return
	}
	w.data++
	if w.passed != nil {
		w.passed(m.user)
	}
}

// sweep forgets who was not heard for long.
func (w *window) sweep(now int64) {
	w.swept = now
	for r, m := range w.users {
		if now-m.heard > w.keep {
			delete(w.users, r)
		}
	}
}

// whole tells whether the window says how many were there: it lies after its
// beginning, and nine tenths of it were heard.
func (w *window) whole() bool {
	return w.begun && w.last-w.first >= w.length-1 && int64(w.heard) >= w.length*9/10
}
