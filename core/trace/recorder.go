// SPDX-License-Identifier: Apache-2.0

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
	// queueLen is the number of events of about 250 bytes that may wait for the writer. They fill 2
	// MB, which is one second at 2.5 Gbit/s in segments of 64 KB with two events each.
	queueLen = 8192
	// flushEvery bounds the time that a killed process's file lacks.
	flushEvery = 200 * time.Millisecond
	bufferLen  = 64 << 10
)

// Recorder writes events to a file from its own goroutine, and passes changes to one listener. The
// methods of a nil Recorder do nothing, so callers need no check. All methods are safe for
// concurrent use.
//
// If the disk is slower than the data path, events are dropped and counted in an event of kind
// Dropped. If writing fails, recording ends with one log entry. Add is not affected by either.
type Recorder struct {
	who      string
	log      *slog.Logger
	onChange func(Event)   // listener for changes; nil: none
	queue    chan Event    // nil without a file
	quit     chan struct{} // closed by Close
	done     chan struct{} // closed when the writer goroutine has ended
	off      atomic.Bool   // after Close or a failure
	dropped  atomic.Uint64
	once     sync.Once
}

// Open creates the file at path, readable by its owner only, and returns a Recorder that writes to
// it. It replaces an existing file. For an empty path it returns a nil Recorder.
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

// New starts a Recorder that writes to w, and closes w in the end. It sets who in events without
// one. Call Close, or the last events and a goroutine are lost.
func New(w io.WriteCloser, who string, log *slog.Logger) *Recorder {
	r := &Recorder{who: who, log: log, queue: make(chan Event, queueLen), quit: make(chan struct{}),
		done: make(chan struct{})}
	go r.runTraceWriter(w)
	return r
}

// NotifyChanges registers f as the listener for events whose kind is a change. Add calls f
// directly; f must not block. Call it before the first Add. It returns r or, if r is nil, a
// Recorder of that name without a file.
func (r *Recorder) NotifyChanges(who string, f func(Event)) *Recorder {
	if r == nil {
		return &Recorder{who: who, onChange: f}
	}
	r.onChange = f
	return r
}

// Enabled reports whether all events are recorded. Check it before costly work for events that are
// no changes.
func (r *Recorder) Enabled() bool { return r != nil && r.queue != nil && !r.off.Load() }

// Add records e. It sets e.T to the current time unless it is set. It never blocks.
func (r *Recorder) Add(e Event) {
	notify := r != nil && r.onChange != nil && e.Kind.IsChange()
	if !notify && !r.Enabled() {
		return
	}
	if e.T == 0 {
		e.T = time.Now().UnixNano()
	}
	if e.Who == "" {
		e.Who = r.who
	}
	if notify {
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

// AddFunc returns a function that adds events of one bond, or nil if r is nil.
func (r *Recorder) AddFunc(bond string) func(Event) {
	if r == nil {
		return nil
	}
	return func(e Event) {
		e.Bond = bond
		r.Add(e)
	}
}

// Close writes the events added so far and ends recording. Later events are ignored. It waits for
// the disk.
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

// runTraceWriter writes events to w until Close or a failure, then closes w.
func (r *Recorder) runTraceWriter(w io.WriteCloser) {
	defer close(r.done)
	buf := bufio.NewWriterSize(w, bufferLen)
	err := r.writeEvents(buf)
	if err == nil {
		r.drainQueue(buf)
		err = buf.Flush()
	}
	r.off.Store(true)
	if err = errors.Join(err, w.Close()); err != nil {
		r.log.Error("cannot write event trace, recording ends", "error", err, "who", r.who)
	}
}

// writeEvents writes events until Close or a failure. It flushes flushEvery after the first event
// that follows a flush.
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

// drainQueue writes the remaining events of the queue. An error stays in buf for Flush.
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

// writeEvent writes e, preceded by the number of dropped events if there are any.
func (r *Recorder) writeEvent(enc *json.Encoder, e Event) error {
	if n := r.dropped.Swap(0); n > 0 {
		if err := enc.Encode(Event{T: e.T, Who: r.who, Kind: Dropped, Count: n}); err != nil {
			return err
		}
	}
	return enc.Encode(e)
}
