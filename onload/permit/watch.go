package permit

import (
	"encoding/json"
	"net/http"
	"time"
)

// watcher is a device that waits for its permit to be taken back.
type watcher struct {
	device, cell string
	revoked      chan answer // one, or closed: another request of the device watches
}

// watch registers a device, in place of an earlier request of it. mu must be held.
func (s *Service) watch(device, cell string) *watcher {
	s.unwatch(s.watchers[device])
	w := &watcher{device, cell, make(chan answer, 1)}
	s.watchers[device] = w
	return w
}

// unwatch ends a registration, if it is still there. mu must be held.
func (s *Service) unwatch(w *watcher) {
	if w != nil && s.watchers[w.device] == w {
		delete(s.watchers, w.device)
		close(w.revoked)
	}
}

// revoke takes permits of a cell back if it is loaded: those whose devices watch. Others
// keep theirs to the end, as they would not know. mu must be held.
func (s *Service) revoke(cell string) {
	taken := 0
	for _, w := range s.watchers {
		if w.cell != cell {
			continue
		}
		if a, ok := s.issuer.Revoke(s.now(), w.device, cell); ok {
			w.revoked <- answerOf(a)
			s.unwatch(w)
			taken++
		}
	}
	if taken == 0 {
		return
	}
	s.log.Info("permits are taken back: the cell is loaded", "cell", cell, "permits", taken)
	if s.journal != nil {
		s.note(s.rewrite())
	}
}

// hold keeps the answer to a device open until its permit is taken back, the device has
// gone or asks again.
func (s *Service) hold(w http.ResponseWriter, r *http.Request, watched *watcher) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(watched)
	}()
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Time{}) != nil || out.SetWriteDeadline(time.Now().Add(answerTime)) != nil || out.Flush() != nil {
		return
	}
	r.Context().Value(guestKey{}).(*guest).leave() // it is known, and holds one connection
	select {
	case <-r.Context().Done():
	case a, ok := <-watched.revoked:
		if ok && out.SetWriteDeadline(time.Now().Add(answerTime)) == nil {
			_ = json.NewEncoder(w).Encode(a) // who has gone asks again
		}
	}
}
