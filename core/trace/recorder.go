package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/userfile"
)

// Tuning.
const (
	// queueLen events of some 250 bytes wait for the writer: 2 MB, which is a
	// second at 2.5 Gbit/s in segments of 64 KB with two events each.
	queueLen = 8192
	// flushEvery bounds what is missing from the file of a killed process.
	flushEvery = 200 * time.Millisecond
	bufferLen  = 64 << 10
)

// Recorder writes events to a file, from a goroutine of its own, and tells
// changes to one listener. The methods of a nil Recorder do nothing, so that
// nobody has to ask whether a trace is wanted. All methods are safe for
// concurrent use.
//
// When the disk is slower than the data path, events are dropped and counted
// in an event of kind Dropped. When writing fails, recording ends with one log
// entry. Neither is felt by who calls Add.
type Recorder struct {
	who      string
	log      *slog.Logger
	onChange func(Event)   // nil, or told of changes
	queue    chan Event    // nil without a file
	quit     chan struct{} // closed by Close
	done     chan struct{} // closed when the writer goroutine has ended
	off      atomic.Bool   // after Close or a failure
	dropped  atomic.Uint64
	once     sync.Once
}

// Open is New for a new file at path, which only its owner can read. A file
// that is there is replaced. An empty path gives a nil Recorder.
func Open(path, who string, log *slog.Logger) (*Recorder, error) {
	if path == "" {
		return nil, nil
	}
	f, err := userfile.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return New(f, who, log), nil
}

// New starts a Recorder that writes to w and, in the end, closes it. Who is
// set in events that do not say it themselves. Call Close in the end, or the
// last events and a goroutine are lost.
func New(w io.WriteCloser, who string, log *slog.Logger) *Recorder {
	r := &Recorder{who: who, log: log, queue: make(chan Event, queueLen), quit: make(chan struct{}), done: make(chan struct{})}
	go r.runWriter(w)
	return r
}

// NotifyChanges has f told of each event whose kind is a Change, by who adds it; f must
// not block. It is called before the first Add. The result is r or, if that is
// nil, a Recorder of that name without a file.
func (r *Recorder) NotifyChanges(who string, f func(Event)) *Recorder {
	if r == nil {
		return &Recorder{who: who, onChange: f}
	}
	r.onChange = f
	return r
}

// Enabled tells whether all events are wanted. Ask before costly preparations of
// those that are no Change.
func (r *Recorder) Enabled() bool { return r != nil && r.queue != nil && !r.off.Load() }

// Add records e, as of now unless e.T is set. It never blocks.
func (r *Recorder) Add(e Event) {
	tell := r != nil && r.onChange != nil && e.Kind.IsChange()
	if !tell && !r.Enabled() {
		return
	}
	if e.T == 0 {
		e.T = time.Now().UnixNano()
	}
	if e.Who == "" {
		e.Who = r.who
	}
	if tell {
		r.onChange(e)
	}
	if !r.Enabled() {
		return
	}
	select {
	case r.queue <- e:
	default:
		r.dropped.Add(1)
	}
}

// AddFunc is Add for the events of one bond, or nil if nothing is recorded, for
// users that know of no Recorder.
func (r *Recorder) AddFunc(bond string) func(Event) {
	if r == nil {
		return nil
	}
	return func(e Event) {
		e.Bond = bond
		r.Add(e)
	}
}

// Close writes what was added before and ends recording; what is added later
// is ignored. It waits for the disk.
func (r *Recorder) Close() {
	if r == nil || r.queue == nil {
		return
	}
	r.once.Do(func() {
		r.off.Store(true)
		close(r.quit)
	})
	<-r.done
}

// runWriter is the writer goroutine.
func (r *Recorder) runWriter(w io.WriteCloser) {
	defer close(r.done)
	buf := bufio.NewWriterSize(w, bufferLen)
	err := r.writeEvents(buf)
	if err == nil {
		r.drainQueue(buf)
		err = buf.Flush()
	}
	r.off.Store(true)
	if err = errors.Join(err, w.Close()); err != nil {
		r.log.Error("the event trace is incomplete: writing it failed", "error", err, "who", r.who)
	}
}

// writeEvents writes events until Close or a failure. A flush is due some time after
// the first event that follows a flush.
func (r *Recorder) writeEvents(buf *bufio.Writer) error {
	enc := json.NewEncoder(buf)
	flush := time.NewTimer(0)
	defer flush.Stop()
	for {
		select {
		case e := <-r.queue:
			if buf.Buffered() == 0 {
				flush.Reset(flushEvery)
			}
			if err := r.writeEvent(enc, e); err != nil {
				return err
			}
		case <-flush.C:
			if err := buf.Flush(); err != nil {
				return err
			}
		case <-r.quit:
			return nil
		}
	}
}

// drainQueue writes what is left in the queue. An error stays in buf for Flush.
func (r *Recorder) drainQueue(buf *bufio.Writer) {
	enc := json.NewEncoder(buf)
	for {
		select {
		case e := <-r.queue:
			_ = r.writeEvent(enc, e)
		default:
			if n := r.dropped.Swap(0); n > 0 {
				_ = enc.Encode(Event{T: time.Now().UnixNano(), Who: r.who, Kind: Dropped, Count: n})
			}
			return
		}
	}
}

// writeEvent writes e and, before it, how many events were dropped.
func (r *Recorder) writeEvent(enc *json.Encoder, e Event) error {
	if n := r.dropped.Swap(0); n > 0 {
		if err := enc.Encode(Event{T: e.T, Who: r.who, Kind: Dropped, Count: n}); err != nil {
			return err
		}
	}
	return enc.Encode(e)
}
