// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"encoding/json"
	"net/http"
	"time"
)

// watcher is a device that waits for the revocation of its permit.
type watcher struct {
	device, cell string
	// gets one answer, or is closed if another request of the device watches
	revoked chan wireAnswer
}

// addWatcher registers a device, in place of an earlier request. mu must be held.
func (s *Service) addWatcher(device, cell string) *watcher {
	s.removeWatcher(s.watchers[device])
	w := &watcher{device, cell, make(chan wireAnswer, 1)}
	s.watchers[device] = w
	return w
}

// removeWatcher ends a registration that still exists. mu must be held.
func (s *Service) removeWatcher(w *watcher) {
	if w != nil && s.watchers[w.device] == w {
		delete(s.watchers, w.device)
		close(w.revoked)
	}
}

// revokeLoaded revokes the watched permits of a cell if it is loaded. Other permits stay valid,
// since their devices would not notice. mu must be held.
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
			if s.sharing != nil {
				s.sharing.noteRevoked(cell, w.device)
			}
		}
	}
	if taken == 0 {
		return
	}
	s.log.Info("permits revoked: the cell is loaded", "cell", cell, "permits", taken)
	if s.journal != nil {
		s.logJournalProblem(s.rewriteJournal())
	}
}

// holdResponse keeps a response open until the permit is revoked, or until the device disconnects
// or sends a new request.
func (s *Service) holdResponse(w http.ResponseWriter, r *http.Request, watched *watcher) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeWatcher(watched)
	}()
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Time{}) != nil ||
		out.SetWriteDeadline(time.Now().Add(responseTimeout)) != nil || out.Flush() != nil {
		return
	}
	// an authenticated device holds one connection
	r.Context().Value(connContextKey{}).(*admittedConn).release()
	select {
	case <-r.Context().Done():
	case a, ok := <-watched.revoked:
		if ok && out.SetWriteDeadline(time.Now().Add(responseTimeout)) == nil {
			_ = json.NewEncoder(w).Encode(a) // a client that is gone asks again
		}
	}
}
