// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"mpbond/api"
)

const (
	// maxEventReaders is the greatest number of readers of events.
	maxEventReaders = 32
	// eventBatch is the number of events copied for a reader at a time.
	eventBatch = 64
	// positionInterval is how long a stream is silent before a Position checks whether its reader
	// is still there.
	positionInterval = 30 * time.Second
)

type eventsInput struct {
	After string `query:"after" maxLength:"20" pattern:"^[0-9]*$" doc:"start after this number; default: the newest event"`
	// LastEventID is sent by browsers when they reconnect.
	LastEventID string `header:"Last-Event-ID" maxLength:"20" doc:"the same, sent by browsers when they reconnect"`
}

// Resolve implements huma.Resolver: it rejects what startPosition cannot read.
func (in *eventsInput) Resolve(huma.Context) []error {
	if _, _, err := in.startPosition(); err != nil {
		return []error{err}
	}
	return nil
}

// startPosition returns the number of the event to begin after, and whether one was given.
func (in *eventsInput) startPosition() (seq uint64, given bool, err error) {
	text := in.After
	if text == "" {
		text = in.LastEventID
	}
	if text == "" {
		return 0, false, nil
	}
	if seq, err = strconv.ParseUint(text, 10, 64); err != nil {
		err = fmt.Errorf("invalid event number %q: it must be the seq of an event", text)
	}
	return seq, true, err
}

func (r Role) registerEvents(a huma.API) {
	var readers atomic.Int32
	op := newOperation(
		http.MethodGet,
		"/v2/events",
		"changes as they happen, as server-sent events: event `change`, "+
			"and `position` with the reader's position and missed events",
	)
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		defer readers.Add(-1)
		if readers.Add(1) > maxEventReaders {
			_ = huma.WriteErr(a, ctx, http.StatusTooManyRequests, "too many readers of events")
			return
		}
		next(streamContext{ctx})
	}}
	sse.Register(
		a,
		op,
		map[string]any{"change": api.Event{}, "position": api.Position{}},
		func(ctx context.Context, in *eventsInput, send sse.Sender) {
			_ = r.sendRoleEvents(ctx, in, send) // an error means that the reader has gone
		},
	)
}

// streamContext is a context whose answer the library may write to after the reader has gone. The
// library would otherwise complain on standard error; the end of the context is enough.
type streamContext struct{ anyContext }

// anyContext renames huma.Context, which has a method Context.
type anyContext huma.Context

// BodyWriter implements huma.Context.
func (s streamContext) BodyWriter() io.Writer {
	return lenientWriter{s.anyContext.BodyWriter().(http.ResponseWriter)}
}

type lenientWriter struct{ http.ResponseWriter }

// Flush implements http.Flusher.
func (l lenientWriter) Flush() { _ = http.NewResponseController(l.ResponseWriter).Flush() }

// SetWriteDeadline is called by the library.
func (l lenientWriter) SetWriteDeadline(t time.Time) error {
	_ = http.NewResponseController(l.ResponseWriter).SetWriteDeadline(t)
	return nil
}

// sendRoleEvents sends events until ctx ends or sending fails.
func (r Role) sendRoleEvents(ctx context.Context, in *eventsInput, send sse.Sender) error {
	feed := r.Feed
	if feed == nil {
		feed = new(Feed)
	}
	at, given, _ := in.startPosition()
	newest := feed.newestEventSeq()
	begin := api.Position{Restarted: given && at > newest}
	switch {
	case begin.Restarted:
		at = 0
	case !given:
		at = newest
	}
	_, begin.MissedEvents, _ = feed.eventsAfter(at, nil)
	at += begin.MissedEvents
	begin.Seq = at
	if err := send(sse.Message{ID: int(at), Data: begin}); err != nil {
		return err
	}
	quiet := time.NewTimer(positionInterval)
	defer quiet.Stop()
	batch := make([]api.Event, 0, eventBatch)
	for {
		events, missed, more := feed.eventsAfter(at, batch)
		if missed > 0 {
			at += missed
			if err := send(sse.Message{ID: int(at), Data: api.Position{Seq: at, MissedEvents: missed}}); err != nil {
				return err
			}
		}
		for _, e := range events {
			if err := send(sse.Message{ID: int(e.Seq), Data: e}); err != nil {
				return err
			}
			at = e.Seq
		}
		quiet.Reset(positionInterval)
		if more == nil {
			continue
		}
		select {
		case <-more:
		case <-quiet.C:
			if err := send(sse.Message{ID: int(at), Data: api.Position{Seq: at}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
