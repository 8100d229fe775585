// SPDX-License-Identifier: Apache-2.0

package simulate

import "time"

// Player requests one item after the other, as video players do, whenever less than BufferTarget of
// media is buffered.
type Player struct {
	ItemDuration time.Duration // of media
	BufferTarget time.Duration
	Lookahead    int // items on the board beyond the requested one
}

// playerState is the state of a Player.
type playerState struct {
	Player
	nextItem    int           // item
	nextRequest time.Duration // when it requests nextItem
	playsUntil  time.Duration // when its buffer runs empty
}

// advancePlayer lets the player request and receive items up to now.
func (r *simulation) advancePlayer() {
	for v := r.player; v != nil && v.nextItem < len(r.items) && v.nextRequest <= r.now; v.nextItem++ {
		r.addDueItems()
		object := r.items[v.nextItem].Object
		if r.result.Completed[v.nextItem] == 0 {
			r.board.SetWanted(object, true)
			return
		}
		r.board.SetWanted(object, false)
		if v.nextItem > 0 && r.now > v.playsUntil {
			r.result.Stalled += r.now - v.playsUntil
		}
		r.result.Delivered = append(r.result.Delivered, r.now)
		v.playsUntil = max(v.playsUntil, r.now) + v.ItemDuration
		v.nextRequest = max(r.now, v.playsUntil-v.BufferTarget)
	}
}

// isAnnounced reports whether item i is on the board by now.
func (r *simulation) isAnnounced(i int) bool {
	if v := r.player; v != nil {
		return v.nextRequest <= r.now && i <= v.nextItem+v.Lookahead || i < v.nextItem+v.Lookahead
	}
	return r.announced == nil || r.announced[i] <= r.now
}

// playerWaits reports whether the player has not received all items yet.
func (r *simulation) playerWaits() bool { return r.player != nil && r.player.nextItem < len(r.items) }
