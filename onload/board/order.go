package board

import (
	"time"

	"mpbond/base/unit"
)

// inOrder plans what waits, in the order in which it is wanted, each item on the path that
// would have it soonest, and tells the first that falls to this one. What is there of a
// later item is of no use before all older ones are: so a slow path begins what it will
// have about when it is wanted. It is -1 if this path should wait.
func inOrder(v *View, path int) (item int) {
	if v.Waiting[0].To == Unknown && v.Usual == 0 {
		return 0 // no item is like another one yet
	}
	ready, does := v.busy(path)
	for i, item := range v.Waiting {
		first, at := v.soonest(ready, does, item, path)
		if first == path {
			return i
		}
		ready[first] = at
	}
	if v.helps(path) && v.Whole {
		return -1 // the home line has each sooner, and could use nothing of this path's
	}
	return len(v.Waiting) - 1 // others can have it back
}

// busy returns when each path is ready with what it was given, and what it would do next,
// as path sees it: what others begin in addition is not counted.
func (v *View) busy(path int) (ready []time.Duration, does []pace) {
	ready, does = make([]time.Duration, len(v.Paths)), make([]pace, len(v.Paths))
	for i, p := range v.Paths {
		if does[i] = reckon(v, i); !p.Up || p.Busy || p.Extra && i != path { // with what is not shown to this path, if not below
			ready[i] = far
		}
	}
	for _, j := range v.Running {
		if j.Path == path || !v.Paths[j.Path].Extra {
			ready[j.Path] = v.left(j)
		}
	}
	return ready, does
}

// soonest is the path that would have an item first, after what each has, and when: the
// path that asks, if nobody can tell.
func (v *View) soonest(ready []time.Duration, does []pace, i Item, path int) (first int, at time.Duration) {
	first, at = path, far
	for k := range does {
		if end := ready[k] + v.takes(does, i, k); end < at {
			first, at = k, end
		}
	}
	return first, at
}

// takes is for how long a path would bring an item: for ever, if it may not have it.
func (v *View) takes(does []pace, i Item, path int) time.Duration {
	if v.barred[[2]int{v.Paths[path].Line, i.Object}] {
		return far
	}
	return does[path].ends(v.size(i))
}

// size is that of an item, or what is usual.
func (v *View) size(i Item) unit.Bytes {
	if i.To == Unknown {
		return max(0, v.Usual-i.From)
	}
	return i.Size()
}

// left is when a job will be ready, if its item has the usual size where nobody told it.
func (v *View) left(j Job) time.Duration {
	if j.Item.To == Unknown {
		return ongoing(v, j).ends(max(0, v.Usual-j.Got))
	}
	return left(v, j)
}

// helpOlder is to take the end of an older item that would be ready late beside the next
// one, and so keep all after it from being used.
func helpOlder(v *View, path int, next Item) (Decision, bool) {
	end := reckon(v, path).ends(v.size(next))
	for _, j := range v.Running {
		if older(j.Item, next) > 0 {
			break
		}
		if d, gain := share(v, j, path); gain > worthOld*v.Paths[path].Latency && left(v, j) > end+end/2 {
			d.Reason = OlderEnd
			return d, true
		}
	}
	return Decision{}, false
}
