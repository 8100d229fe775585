package serve

import (
	"maps"
	"sync"

	"mpbond/api"
)

// maxKeptEvents are kept for readers that are slow or come back: some 200 KB.
const maxKeptEvents = 1024

// Feed is the stream of changes. It keeps the last ones once, for all readers;
// each reader has a position of its own and is told how many it missed, so that
// a slow one costs nothing and holds nobody up. The zero Feed is ready. Safe for
// concurrent use.
type Feed struct {
	mu        sync.Mutex
	ring      [maxKeptEvents]api.Event // event n is at n % maxKeptEvents
	last      uint64                   // number of the newest, 0 while there is none
	nextAdded chan struct{}            // closed by the next Add; nil while nobody waits
	counts    map[string]uint64        // by kind
}

// Add tells of a change: it sets e's number. It never blocks.
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

// last returns the number of the newest event.
func (f *Feed) newestSeq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// eventsAfter copies the events that follow number seq into list, and returns how many
// between were not kept. If there are none, more is closed when one comes.
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

// countByKind is how many events of each kind there were.
func (f *Feed) countByKind() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
