// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// serverStates holds what the servers last reported of themselves. Safe for concurrent use.
type serverStates struct {
	mu     sync.Mutex
	byName map[string]ServerState
	seen   map[string]time.Time // when it came, by this server's clock
}

func newServerStates() *serverStates {
	return &serverStates{byName: map[string]ServerState{}, seen: map[string]time.Time{}}
}

// apply applies a change of Servers.
func (s *serverStates) apply(c Change, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.IsGone {
		delete(s.byName, c.Key)
		delete(s.seen, c.Key)
		return
	}
	var st ServerState
	if json.Unmarshal(c.Value, &st) != nil || st.Name != c.Key {
		return // of a later version, or damaged: as if the server did not run
	}
	s.byName[c.Key], s.seen[c.Key] = st, now
}

// running returns the servers that reported within ServerLife, by name.
func (s *serverStates) running(now time.Time) []ServerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Collect(maps.Values(s.byName)), func(st ServerState) bool {
		return now.Sub(s.seen[st.Name]) > ServerLife
	})
	slices.SortFunc(list, func(a, b ServerState) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// listBehind returns the servers on a list, or running, that have not reported to have applied a revision.
func (s *serverStates) listBehind(l ServerList, revision uint64, now time.Time) (behind []string) {
	applied := map[string]uint64{}
	for _, one := range l.Servers {
		applied[one.Name] = 0
	}
	for _, st := range s.running(now) {
		applied[st.Name] = st.Applied
	}
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if applied[name] < revision {
			behind = append(behind, name)
		}
	}
	return behind
}

// hints describes the running servers for primaries.
func (s *serverStates) hints(now time.Time) []Hint {
	list := []Hint{}
	for _, st := range s.running(now) {
		list = append(list, Hint{Name: st.Name, Draining: st.Draining, Full: st.Load.Full, CPU: st.Load.CPU})
	}
	return list[:min(len(list), MaxServers)]
}
