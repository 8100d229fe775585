// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"mpbond/base/fault"
)

// Late returns a Store whose engine did not answer when it was opened. A call opens it if it is not open yet, and fails
// with the error of that as long as that fails. Other calls meanwhile fail at once, with a fault of kind Unreachable.
// name is the engine's name for people.
func Late(open func(context.Context) (Store, error), name string) Store {
	return &lateStore{openStore: open, name: name}
}

type lateStore struct {
	openStore func(context.Context) (Store, error)
	name      string

	mu        sync.Mutex
	store     Store // nil: not open
	isOpening bool
	closed    bool
	tried     time.Time // when the last try ended
	err       error     // of the last try
}

var (
	errLateOpening = fault.New(fault.Unreachable, errors.New("the fleet's engine has not answered yet"),
		"check that nats-server runs")
	errLateClosed = fault.New(fault.Unreachable, errors.New("the engine is no longer used"), "")
)

// engine returns the store, which it opens if needed: at most once in each retryInterval, and by one call at a time.
func (l *lateStore) engine(ctx context.Context) (Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.store != nil:
		return l.store, nil
	case l.closed:
		return nil, errLateClosed
	case l.isOpening:
		return nil, cmp.Or(l.err, errLateOpening)
	case time.Since(l.tried) < retryInterval:
		return nil, l.err
	}
	l.isOpening = true
	l.mu.Unlock()
	s, err := l.openStore(ctx)
	l.mu.Lock()
	l.isOpening, l.tried, l.err = false, time.Now(), err
	if err == nil && l.closed {
		s.Close()
		return nil, errLateClosed
	}
	if err == nil {
		l.store = s
	}
	return s, err
}

func (l *lateStore) Get(ctx context.Context, b Bucket, key string) (Record, error) {
	s, err := l.engine(ctx)
	if err != nil {
		return Record{}, err
	}
	return s.Get(ctx, b, key)
}

func (l *lateStore) ListUnder(ctx context.Context, b Bucket, prefixes []string) ([]Record, error) {
	s, err := l.engine(ctx)
	if err != nil {
		return nil, err
	}
	return s.ListUnder(ctx, b, prefixes)
}

func (l *lateStore) Create(ctx context.Context, b Bucket, key string, value []byte, life time.Duration) (uint64,
	error) {
	s, err := l.engine(ctx)
	if err != nil {
		return 0, err
	}
	return s.Create(ctx, b, key, value, life)
}

func (l *lateStore) Update(ctx context.Context, b Bucket, r Record) (uint64, error) {
	s, err := l.engine(ctx)
	if err != nil {
		return 0, err
	}
	return s.Update(ctx, b, r)
}

func (l *lateStore) Put(ctx context.Context, b Bucket, key string, value []byte) (uint64, error) {
	s, err := l.engine(ctx)
	if err != nil {
		return 0, err
	}
	return s.Put(ctx, b, key, value)
}

func (l *lateStore) Delete(ctx context.Context, b Bucket, key string, revision uint64) error {
	s, err := l.engine(ctx)
	if err != nil {
		return err
	}
	return s.Delete(ctx, b, key, revision)
}

func (l *lateStore) Watch(ctx context.Context, b Bucket, take func(Change)) error {
	s, err := l.engine(ctx)
	if err != nil {
		return err
	}
	return s.Watch(ctx, b, take)
}

func (l *lateStore) AddEvents(ctx context.Context, events ...Event) error {
	s, err := l.engine(ctx)
	if err != nil {
		return err
	}
	return s.AddEvents(ctx, events...)
}

func (l *lateStore) Events(ctx context.Context, from time.Time, follow bool, take func(Event)) error {
	s, err := l.engine(ctx)
	if err != nil {
		return err
	}
	return s.Events(ctx, from, follow, take)
}

func (l *lateStore) CheckRoom(ctx context.Context) error {
	s, err := l.engine(ctx)
	if err != nil {
		return err
	}
	return s.CheckRoom(ctx)
}

func (l *lateStore) MakeRoom(ctx context.Context) {
	if s, err := l.engine(ctx); err == nil { // else what follows fails, too
		s.MakeRoom(ctx)
	}
}

func (l *lateStore) Describe() string { return l.name }

func (l *lateStore) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed = true; l.store != nil {
		l.store.Close()
		l.store = nil
	}
}
