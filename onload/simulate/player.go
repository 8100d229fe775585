package simulate

import "time"

// Player asks for one item after the other, as players of videos do, when less than Keep of
// media is left to play.
type Player struct {
	Each  time.Duration // of media in an item
	Keep  time.Duration
	Ahead int // items that the board has beyond the one that the player asked for
}

// viewer is a Player, and where it is.
type viewer struct {
	Player
	next  int           // item
	asks  time.Duration // when it asks for that
	plays time.Duration // until when it can play
}

// watch moves the player on.
func (r *run) watch() {
	for v := r.viewer; v != nil && v.next < len(r.items) && v.asks <= r.now; v.next++ {
		r.add()
		object := r.items[v.next].Object
		if r.res.Completed[v.next] == 0 {
			r.board.SetWanted(object, true)
			return
		}
		r.board.SetWanted(object, false)
		if v.next > 0 && r.now > v.plays {
			r.res.Stalled += r.now - v.plays
		}
		r.res.Given = append(r.res.Given, r.now)
		v.plays = max(v.plays, r.now) + v.Each
		v.asks = max(r.now, v.plays-v.Keep)
	}
}

// isTold reports whether the board may have an item now.
func (r *run) isTold(i int) bool {
	if v := r.viewer; v != nil {
		return v.asks <= r.now && i <= v.next+v.Ahead || i < v.next+v.Ahead
	}
	return r.comes == nil || r.comes[i] <= r.now
}

// watches reports whether the player has not everything yet.
func (r *run) watches() bool { return r.viewer != nil && r.viewer.next < len(r.items) }
