// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"maps"
	"sync"

	"mpbond/api"
)

// maxKeptEvents is the number of events kept for slow or returning readers: some 200 KB.
const maxKeptEvents = 1024

// Feed is the stream of events. It keeps the last ones once for all readers. Each reader has its
// own position and learns how many events it missed, so a slow reader costs nothing and blocks
// no other. The zero Feed is ready. Safe for concurrent use.
type Feed struct {
	mu        sync.Mutex
	ring      [maxKeptEvents]api.Event // event n is at n % maxKeptEvents
	last      uint64                   // number of the newest event, 0 for none
	nextAdded chan struct{}            // closed by the next Add; nil while no reader waits
	counts    map[string]uint64        // by kind
}

// Add adds an event and sets its number. It never blocks.
func (f *Feed) Add(e api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	e.Seq = f.last
	f.ring[f.last%maxKeptEvents] = e
	if f.counts == nil {
		f.counts = map[string]uint64{}
	}
	f.counts[e.Kind]++
	if f.nextAdded != nil {
		close(f.nextAdded)
		f.nextAdded = nil
	}
}

// newestEventSeq returns the number of the newest event.
func (f *Feed) newestEventSeq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// eventsAfter copies the events after number seq into list, and returns how many of these were not
// kept. If there are none, more is closed by the next event.
func (f *Feed) eventsAfter(seq uint64, list []api.Event) (events []api.Event, missed uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if oldest := f.last - min(f.last, maxKeptEvents); seq < oldest {
		missed = oldest - seq
		seq = oldest
	}
	for events = list[:0]; seq < f.last && len(events) < cap(list); {
		seq++
		events = append(events, f.ring[seq%maxKeptEvents])
	}
	if len(events) == 0 {
		if f.nextAdded == nil {
			f.nextAdded = make(chan struct{})
		}
		more = f.nextAdded
	}
	return events, missed, more
}

// countByKind returns the number of events of each kind.
func (f *Feed) countByKind() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
