// SPDX-License-Identifier: Apache-2.0

package census

import "mpbond/pbe/cell"

// windowUser is one user of a window.
type windowUser struct {
	share            // sums within the window
	subframes  int   // with a downlink grant
	lastHeard  int64 // last
	isDataUser bool  // passed the user filter at the last check
}

// userWindow has the users' shares in the last subframes of one cell.
type userWindow struct {
	length        int64 // in subframes
	retention     int64 // how many subframes a silent user stays
	ring          [][]share
	users         map[cell.RNTI]*windowUser
	dataUsers     int   // users that pass the user filter
	first         int64 // first number since the count started
	last          int64
	receivedCount int // received subframes within the window
	received      []bool
	started       bool
	lastSweep     int64

	// onDataUser, if set, is called when a user starts to pass the filter.
	onDataUser func(cell.RNTI)
}

func newUserWindow(length, keep int64) *userWindow {
	return &userWindow{length: length, retention: keep, ring: make([][]share, length), received: make([]bool, length),
		users: map[cell.RNTI]*windowUser{}}
}

// resetWindow forgets everything.
func (w *userWindow) resetWindow() {
	w.clearShares()
	clear(w.users)
	w.started = false
}

// clearShares empties the window; retained users stay.
func (w *userWindow) clearShares() {
	for i := range w.ring {
		w.ring[i], w.received[i] = w.ring[i][:0], false
	}
	for _, m := range w.users {
		m.share, m.subframes, m.isDataUser = share{user: m.user, format: m.format, mcs: m.mcs}, 0, false
	}
	if w.retention == 0 {
		clear(w.users)
	}
	w.dataUsers, w.receivedCount = 0, 0
}

// addSubframeShares adds the shares of the next subframe, one per user. A number that is not after
// the last one restarts the window.
func (w *userWindow) addSubframeShares(number int64, shares []share) {
	if w.started && number <= w.last {
		w.resetWindow()
	}
	if !w.started {
		w.started, w.first, w.last, w.lastSweep = true, number, number-1, number
	}
	if number-w.last >= w.length {
		w.clearShares()
		w.last = number - 1
	}
	for w.last < number {
		w.last++
		w.emptySubframeSlot(w.last)
	}
	i := number % w.length
	w.ring[i], w.received[i] = append(w.ring[i][:0], shares...), true
	w.receivedCount++
	for _, h := range shares {
		m := w.users[h.user]
		if m == nil {
			m = &windowUser{share: share{user: h.user, mcs: noMCS}}
			w.users[h.user] = m
		}
		m.lastHeard = number
		if h.mcs != noMCS || m.mcs == noMCS {
			m.mcs, m.format = h.mcs, h.format
		}
		w.applyShare(m, h, 1)
	}
	if w.retention > 0 && number-w.lastSweep >= w.length {
		w.forgetSilent(number)
	}
}

// emptySubframeSlot empties the slot of subframe number.
func (w *userWindow) emptySubframeSlot(number int64) {
	i := number % w.length
	if !w.received[i] {
		return
	}
	w.received[i] = false
	w.receivedCount--
	for _, h := range w.ring[i] {
		m := w.users[h.user]
		w.applyShare(m, h, -1)
		if w.retention == 0 && m.lastHeard <= number-w.length {
			delete(w.users, h.user)
		}
	}
	w.ring[i] = w.ring[i][:0]
}

// applyShare adds what a user got in a subframe, or removes it with sign -1, and counts the data
// users anew.
func (w *userWindow) applyShare(m *windowUser, h share, sign int) {
	m.addSignedShare(h, sign)
	if h.prb > 0 {
		m.subframes += sign
	}
	is := cell.IsDataUser(m.subframes, m.prb)
	if is == m.isDataUser {
		return
	}
	if m.isDataUser = is; !is {
		w.dataUsers--
		return
	}
	w.dataUsers++
	if w.onDataUser != nil {
		w.onDataUser(m.user)
	}
}

// forgetSilent removes users that have been silent for too long.
func (w *userWindow) forgetSilent(now int64) {
	w.lastSweep = now
	for r, m := range w.users {
		if now-m.lastHeard > w.retention {
			delete(w.users, r)
		}
	}
}

// canCountUsers reports whether the window can count users: it is full since the start, and nine
// tenths of it were received.
func (w *userWindow) canCountUsers() bool {
	return w.started && w.last-w.first >= w.length-1 && int64(w.receivedCount) >= w.length*9/10
}
