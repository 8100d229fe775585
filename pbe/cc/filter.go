package cc

import "time"

// extreme keeps the largest (or smallest, if less) of the values of a window
// whose position is a time or a count of rounds: a queue of those that may still
// become the extreme. The zero value is empty and keeps the largest.
type extreme struct {
	less bool
	list []point
}

type point struct {
	at int64
	v  int64
}

// add puts in v at a position that never goes back, and drops what is more than
// span behind it.
func (e *extreme) add(at, v, span int64) {
	n := len(e.list)
	for n > 0 && (e.list[n-1].v == v || (e.list[n-1].v < v) != e.less) {
		n--
	}
	e.list = append(e.list[:n], point{at, v})
	e.trim(at, span)
}

// trim drops what is more than span behind at; the newest stays.
func (e *extreme) trim(at, span int64) {
	i := 0
	for i < len(e.list)-1 && e.list[i].at < at-span {
		i++
	}
	if i > 0 {
		e.list = append(e.list[:0], e.list[i:]...)
	}
}

// get is the extreme, 0 if there is none yet.
func (e *extreme) get() int64 {
	if len(e.list) == 0 {
		return 0
	}
	return e.list[0].v
}

func (e *extreme) empty() bool { return len(e.list) == 0 }

// smooth is an exponentially weighted mean of delays; the zero value has none.
type smooth struct {
	v   time.Duration
	set bool
}

func (s *smooth) add(v time.Duration, weight float64) {
	if !s.set {
		s.v, s.set = v, true
		return
	}
	s.v += time.Duration(weight * float64(v-s.v))
}
