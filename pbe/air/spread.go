package air

import "mpbond/pbe/lte"

// spread decodes subframes of one receiver at the same time, on goroutines of their
// own, and hands them on in order. It belongs to the goroutine that feeds the receiver.
type spread struct {
	receiver *lte.Receiver
	most     int // subframes at a time
	going    []going
}

// going is a subframe that is being decoded.
type going struct {
	work *lte.Work
	done chan struct{}
}

// newSpread makes r decode so many subframes at a time, if that is more than one.
func newSpread(r *lte.Receiver, most int) *spread {
	s := &spread{receiver: r, most: most}
	if most > 1 {
		r.Spread = s.add
	}
	return s
}

func (s *spread) add(w *lte.Work) {
	for len(s.going) >= s.most {
		s.first()
	}
	g := going{w, make(chan struct{})}
	s.going = append(s.going, g)
	go func() {
		w.Decode()
		close(g.done)
	}()
}

// first waits for the first one.
func (s *spread) first() {
	g := s.going[0]
	<-g.done
	s.going = s.going[:copy(s.going, s.going[1:])]
	s.receiver.Done(g.work)
}

// wait waits for all.
func (s *spread) wait() {
	for len(s.going) > 0 {
		s.first()
	}
}
