// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"mpbond/base/fault"
)

// Batch is the tasks of a queue whose keys begin with the same word.
type Batch struct {
	Name     string
	Version  string    // of its workers; "" if only results are left
	Open     int       // tasks that wait or are being worked on
	Finished int       // tasks that have a result or were given up
	Since    time.Time // when one of them was stored
	Task     []byte    // one of the open tasks; nil: there is none
}

// Batches returns the batches of a queue, oldest first.
func (q *Queue) Batches(ctx context.Context) (list []Batch, err error) {
	err = q.retry(ctx, func(ctx context.Context) (err error) {
		list, err = q.readBatches(ctx)
		return err
	})
	return list, err
}

func (q *Queue) readBatches(ctx context.Context) (list []Batch, err error) {
	byName := map[string]*Batch{}
	find := func(key string) *Batch {
		name, _, _ := strings.Cut(key, ".")
		if byName[name] == nil {
			byName[name] = &Batch{Name: name}
		}
		return byName[name]
	}
	tasks, err := listKeys(ctx, q.tasks, taskSubject)
	if err != nil {
		return nil, err
	}
	for subject := range tasks {
		token, key, _ := strings.Cut(subject, ".")
		b := find(key)
		if b.Open++; b.Open > 1 {
			continue
		}
		if version, err := base64.RawURLEncoding.DecodeString(token); err == nil {
			b.Version = string(version)
		}
		if b.Since, b.Task, err = readLast(ctx, q.tasks, taskSubject+subject); err != nil {
			return nil, err
		}
	}
	marks, err := listKeys(ctx, q.marks, markSubject)
	if err != nil {
		return nil, err
	}
	for key := range marks {
		if strings.HasSuffix(key, returned) {
			continue
		}
		b := find(key)
		if b.Finished++; b.Finished > 1 || !b.Since.IsZero() {
			continue
		}
		if b.Since, _, err = readLast(ctx, q.marks, markSubject+key); err != nil {
			return nil, err
		}
	}
	for _, b := range byName {
		list = append(list, *b)
	}
	slices.SortFunc(list, func(a, b Batch) int { return a.Since.Compare(b.Since) })
	return list, nil
}

// readLast returns the last message of a subject, and when it was stored: nothing if it is gone.
func readLast(ctx context.Context, s jetstream.Stream, subject string) (at time.Time, data []byte, err error) {
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return at, nil, nil
	}
	if err != nil {
		return at, nil, err
	}
	return m.Time, m.Data, nil
}

// Drop removes the tasks of a batch, for workers of all versions, with their results. Workers that have one of
// them finish it for nothing. If there is no such batch, Drop returns a fault of kind NotFound.
func (q *Queue) Drop(ctx context.Context, name string) error {
	list, err := q.Batches(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(b Batch) bool { return b.Name == name }) { // nor is it a pattern of subjects
		return fault.New(fault.NotFound, fmt.Errorf("the queue has no run %.64q", name),
			"mpbond-lab exp queue list shows what it has")
	}
	return q.retry(ctx, func(ctx context.Context) error {
		if err := q.tasks.Purge(ctx, jetstream.WithPurgeSubject(taskSubject+"*."+name+".>")); err != nil {
			return err
		}
		objects, err := q.results.List(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
			return err
		}
		for _, o := range objects { // also those that no mark names, of workers that ended before it
			if strings.HasPrefix(o.Name, name+".") {
				if err := q.deleteObject(ctx, o.Name); err != nil {
					return err
				}
			}
		}
		return q.marks.Purge(ctx, jetstream.WithPurgeSubject(markSubject+name+".>"))
	})
}
