package permit

import (
	"encoding/json"
	"net/http"
	"time"
)

// watcher is a device that waits for its permit to be taken back.
type watcher struct {
	device, cell string
	revoked      chan wireAnswer // one, or closed: another request of the device watches
}

// addWatcher registers a device, in place of an earlier request of it. mu must be held.
func (s *Service) addWatcher(device, cell string) *watcher {
	s.removeWatcher(s.watchers[device])
	w := &watcher{device, cell, make(chan wireAnswer, 1)}
	s.watchers[device] = w
	return w
}

// removeWatcher ends a registration, if it is still there. mu must be held.
func (s *Service) removeWatcher(w *watcher) {
	if w != nil && s.watchers[w.device] == w {
		delete(s.watchers, w.device)
		close(w.revoked)
	}
}

// revokeLoaded takes permits of a cell back if it is loaded: those whose devices watch. Others
// keep theirs to the end, as they would not know. mu must be held.
func (s *Service) revokeLoaded(cell string) {
	taken := 0
	for _, w := range s.watchers {
		if w.cell != cell {
			continue
		}
		if a, ok := s.issuer.Revoke(s.now(), w.device, cell); ok {
			w.revoked <- toWireAnswer(a)
			s.removeWatcher(w)
			taken++
		}
	}
	if taken == 0 {
		return
	}
	s.log.Info("permits are taken back: the cell is loaded", "cell", cell, "permits", taken)
	if s.journal != nil {
		s.logProblem(s.rewriteJournal())
	}
}

// holdResponse keeps the answer to a device open until its permit is taken back, the device has
// gone or asks again.
func (s *Service) holdResponse(w http.ResponseWriter, r *http.Request, watched *watcher) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeWatcher(watched)
	}()
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Time{}) != nil || out.SetWriteDeadline(time.Now().Add(responseTimeout)) != nil || out.Flush() != nil {
		return
	}
	r.Context().Value(connContextKey{}).(*admittedConn).release() // it is known, and holds one connection
	select {
	case <-r.Context().Done():
	case a, ok := <-watched.revoked:
		if ok && out.SetWriteDeadline(time.Now().Add(responseTimeout)) == nil {
			_ = json.NewEncoder(w).Encode(a) // who has gone asks again
		}
	}
}
