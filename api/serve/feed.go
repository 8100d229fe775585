package serve

import (
	"maps"
	"sync"

	"mpbond/api"
)

// keptEvents are kept for readers that are slow or come back: some 200 KB.
const keptEvents = 1024

// Feed is the stream of changes. It keeps the last ones once, for all readers;
// each reader has a position of its own and is told how many it missed, so that
// a slow one costs nothing and holds nobody up. The zero Feed is ready. Safe for
// concurrent use.
type Feed struct {
	mu     sync.Mutex
	ring   [keptEvents]api.Event // event n is at n % keptEvents
	last   uint64                // number of the newest, 0 while there is none
	more   chan struct{}         // closed by the next Add; nil while nobody waits
	counts map[string]uint64     // by kind
}

// Add tells of a change: it sets e's number. It never blocks.
func (f *Feed) Add(e api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	e.Seq = f.last
	f.ring[f.last%keptEvents] = e
	if f.counts == nil {
		f.counts = map[string]uint64{}
	}
	f.counts[e.Kind]++
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
}

// last returns the number of the newest event.
func (f *Feed) newest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// after copies the events that follow number seq into list, and returns how many
// between were not kept. If there are none, more is closed when one comes.
func (f *Feed) after(seq uint64, list []api.Event) (events []api.Event, missed uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if oldest := f.last - min(f.last, keptEvents); seq < oldest {
		missed = oldest - seq
		seq = oldest
	}
	for events = list[:0]; seq < f.last && len(events) < cap(list); {
		seq++
		events = append(events, f.ring[seq%keptEvents])
	}
	if len(events) == 0 {
		if f.more == nil {
			f.more = make(chan struct{})
		}
		more = f.more
	}
	return events, missed, more
}

// count is how many events of each kind there were.
func (f *Feed) count() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
