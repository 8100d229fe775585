// Package loglimit keeps strangers from filling a log. It stands between the ports that
// anybody can call and the log of a role: one line for each kind of event and minute,
// with the number of those that it stands for.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	lineInterval = time.Minute
	maxKinds     = 64 // more share one
)

// Limiter writes events to a log. Safe for concurrent use.
type Limiter struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*eventKind
}

// eventKind is what happened of one kind.
type eventKind struct {
	last  time.Time // when a line was written
	count int       // of events since
	line  func()    // writes the last of them
}

// New returns a Limiter that writes to log.
func New(log *slog.Logger) *Limiter { return &Limiter{log: log, kinds: map[string]*eventKind{}} }

// Log writes an event at once, if it is the first of its kind within a minute. Of those
// that follow the last one is written when the minute has passed, with their number as
// "count"; at the level of debugging each is. What kinds there are must not be for others
// to choose.
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
		time.AfterFunc(k.last.Add(lineInterval).Sub(now), func() { l.writeSummary(k) })
	}
}

// writeSummary writes the line that stands for the events of a minute.
func (l *Limiter) writeSummary(k *eventKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.line()
	k.last, k.count = time.Now(), 0
}
