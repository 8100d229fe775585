// SPDX-License-Identifier: Apache-2.0

// Package loglimit keeps unknown callers from filling a log. Ports that anybody can reach log
// through it: one line per kind of event and minute, with a count.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	lineInterval = time.Minute
	maxKinds     = 64 // further kinds share one
)

// Limiter writes events to a log. It is safe for concurrent use.
type Limiter struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*eventKind
}

// eventKind is the state of one kind of event.
type eventKind struct {
	last  time.Time // when the last line was written
	count int       // events since then
	line  func()    // writes the last one of these
}

// New returns a Limiter that writes to log.
func New(log *slog.Logger) *Limiter { return &Limiter{log: log, kinds: map[string]*eventKind{}} }

// Log logs an event at once if it is the first of its kind within a minute. After the minute it
// logs the last one of the others, with their number as "count"; at debug level each is logged at
// once. Unknown callers must not choose the kinds.
func (l *Limiter) Log(level slog.Level, kind, msg string, args ...any) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil && len(l.kinds) >= maxKinds {
		kind = ""
		k = l.kinds[kind]
	}
	if k == nil {
		k = &eventKind{}
		l.kinds[kind] = k
	}
	if k.count == 0 && now.Sub(k.last) >= lineInterval {
		k.last = now
		l.log.Log(context.Background(), level, msg, args...)
		return
	}
	k.count++
	l.log.Debug(msg, args...)
	k.line = func() { l.log.Log(context.Background(), level, msg, append(args, "count", k.count)...) }
	if k.count == 1 {
		time.AfterFunc(k.last.Add(lineInterval).Sub(now), func() { l.logEventSummary(k) })
	}
}

// logEventSummary logs the line for the events of a minute.
func (l *Limiter) logEventSummary(k *eventKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.line()
	k.last, k.count = time.Now(), 0
}
