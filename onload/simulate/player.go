package simulate

import "time"

// Player asks for one item after the other, as players of videos do, when less than Keep of
// media is left to play.
type Player struct {
	ItemDuration time.Duration // of media in an item
	BufferTarget time.Duration
	Lookahead    int // items that the board has beyond the one that the player asked for
}

// playerState is a Player, and where it is.
type playerState struct {
	Player
	nextItem    int           // item
	nextRequest time.Duration // when it asks for that
	playsUntil  time.Duration // until when it can play
}

// advancePlayer moves the player on.
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

// isAnnounced reports whether the board may have an item now.
func (r *simulation) isAnnounced(i int) bool {
	if v := r.player; v != nil {
		return v.nextRequest <= r.now && i <= v.nextItem+v.Lookahead || i < v.nextItem+v.Lookahead
	}
	return r.announced == nil || r.announced[i] <= r.now
}

// playerWaits reports whether the player has not everything yet.
func (r *simulation) playerWaits() bool { return r.player != nil && r.player.nextItem < len(r.items) }
