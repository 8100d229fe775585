// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Task is a task that this worker has. Its methods must not be called concurrently.
type Task struct {
	queue   *Queue
	msg     jetstream.Msg
	key     string
	stop    context.CancelFunc // ends the signs of life
	beating sync.WaitGroup
	isNoted bool // as not lost. It belongs to the goroutine of beat while that runs
}

// newTask begins to send signs of life.
func (q *Queue) newTask(msg jetstream.Msg, key string) *Task {
	ctx, stop := context.WithCancel(context.Background())
	t := &Task{queue: q, msg: msg, key: key, stop: stop}
	t.beating.Go(func() { t.beat(ctx) })
	return t
}

// beat sends signs of life until ctx ends. Without them the lease ends, and another worker may finish the task too. If
// they did not arrive for the time of a lease, the network was lost and not the worker: beat notes that. The servers
// count the lease from a moment that this worker does not know, so half an interval less is enough.
func (t *Task) beat(ctx context.Context) {
	interval := t.queue.lease / beatsPerTerm
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for last := time.Now(); ; { // when the last one that arrived was sent
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		flushing, cancel := context.WithTimeout(ctx, interval)
		err := errors.Join(t.msg.InProgress(), t.queue.conn.FlushWithContext(flushing))
		cancel()
		if err == nil && !t.isNoted && time.Since(last) > t.queue.lease-interval/2 {
			err = t.queue.noteNotLost(ctx, t.msg, t.key)
			t.isNoted = err == nil
		}
		if err == nil {
			last = sent
		}
	}
}

// Data returns the task as it was submitted.
func (t *Task) Data() []byte { return t.msg.Data() }

// Deliver stores the result, and then removes the task from the queue. It reports whether the result
// counts: not if another worker has delivered one, or the task was removed meanwhile. It counts if the task was
// given up meanwhile. After an error the caller still has the task.
func (t *Task) Deliver(ctx context.Context, result []byte) (counted bool, err error) {
	object := t.key + "." + rand.Text()
	if err := t.queue.retry(ctx, func(ctx context.Context) (err error) {
		counted, err = t.storeResult(ctx, object, result)
		return err
	}); err != nil {
		return false, err
	}
	t.endTask(t.msg.Ack) // if this is lost, the next worker finds the mark
	return counted, nil
}

// storeResult stores the result as an object, marks that, and reports whether it counts. It can be repeated after an
// error. An object that does not count is deleted.
func (t *Task) storeResult(ctx context.Context, object string, result []byte) (counted bool, err error) {
	q := t.queue
	mark, number, err := q.readMark(ctx, t.key)
	if err != nil {
		return false, err
	}
	if mark != lostMark {
		number = 0 // a mark with a result stays
		_, err := q.tasks.GetLastMsgForSubject(ctx, t.msg.Subject())
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if mark == object {
				return true, nil
			}
			return false, q.deleteObject(ctx, object) // of an earlier try
		}
		if err != nil {
			return false, err
		}
	}
	put, cancel := context.WithTimeout(ctx, transferTime(len(result)))
	defer cancel()
	if _, err := q.results.PutBytes(put, object, result); err != nil {
		return false, err
	}
	if err := q.publishAfter(ctx, markSubject+t.key, []byte(object), number); err != nil {
		return false, err
	}
	first, err := q.countedObject(ctx, t.key)
	switch {
	case err != nil:
		return false, err
	case first == "":
		return false, errors.New("the mark of another worker is not stored yet")
	case first == lostMark:
		return false, errors.New("the task was given up just now")
	case first == object:
		return true, nil
	}
	return false, q.results.Delete(ctx, object)
}

// Return gives the task back, so that another worker gets it at once.
func (t *Task) Return() {
	t.endTask(func() error {
		if t.isNoted {
			return t.msg.Nak()
		}
		return t.queue.giveBack(context.Background(), t.msg, t.key)
	})
}

// endTask ends the signs of life and sends the last word on the task.
func (t *Task) endTask(say func() error) {
	t.stop()
	t.beating.Wait()
	if say() == nil {
		_ = t.queue.conn.FlushTimeout(callTimeout)
	}
}
