// SPDX-License-Identifier: Apache-2.0

// Package queue hands tasks to workers on other machines, and their results back, over the streams of
// NATS JetStream. It stands beside the lab, whose experiments are such tasks, and knows nothing of
// them: tasks and results are bytes.
//
//	Submit ─▶ stream of tasks ─ Take ─▶ worker ─ Deliver ─▶ 1. objects: the result
//	               ▲                     │   │              2. stream of marks: which object counts ─▶ State, Result
//	               └── Return, or silence┘   └────────────▶ 3. the task leaves its stream
//
// A task is in its stream until its result is stored. A worker that is silent for the time of a lease
// loses it to another one. Both may finish it: the first mark of a task decides which result counts.
// A task that has lost several workers gets a mark without a result: it may be what ends them. A worker
// that was only cut off is not lost. If it delivers after all, its result takes the place of that mark.
package queue

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mpbond/base/fault"
	"mpbond/base/natsconn"
)

// Names on the servers. Subjects of tasks end in the version and the key, those of marks in the key, and
// those of workers that are not lost in the key and a word.
const (
	tasksStream = "mpbond-lab-tasks"
	marksStream = "mpbond-lab-done"
	bucket      = "mpbond-lab-results"
	taskSubject = "mpbond-lab.task."
	markSubject = "mpbond-lab.done."
	// returned is of a worker that gave its task back, or lives although its lease has ended.
	returned = ".returned"
	// lostMark, in place of an object, marks a task that was given up.
	lostMark = "lost"
)

// maxLost is how many workers a task may lose: one ends by chance, three by the task.
const maxLost = 3

const (
	// DefaultLease is how long a worker may be silent before its task goes to another one.
	DefaultLease = 30 * time.Second
	beatsPerTerm = 3 // signs of life of a worker in the time of a lease
	// retention is how long the servers keep what nobody collects.
	retention   = 30 * 24 * time.Hour
	retryWait   = time.Second // between tries while the servers do not answer
	noteWindow  = time.Hour   // in which a note that a worker repeats is kept once
	pullWait    = 5 * time.Second
	callTimeout = 5 * time.Second
	openTimeout = 30 * time.Second // of nodes that elect a leader first
	maxResult   = 1 << 30          // bytes
)

// transferTime bounds the transfer of a result: at 1 Mbit/s it is complete.
func transferTime[N int | uint64](bytes N) time.Duration {
	return callTimeout + time.Duration(bytes)*8*time.Microsecond
}

// Options say where a queue is.
type Options struct {
	URLs      string        // of NATS servers, separated by commas
	CredsFile string        // credentials; "": none
	CAFile    string        // certificates of the authority that signs for the servers; "": those of the system
	Lease     time.Duration // 0: DefaultLease. All workers of a queue need the same
	// Report gets a text when the servers stop answering, and when they answer again, if set. The
	// goroutine of the call that waits calls it.
	Report func(text string)
}

// Queue is a connection to a queue. While no server answers, calls wait and try again, until their
// context ends. Safe for concurrent use.
type Queue struct {
	name      string // of the servers, for people
	lease     time.Duration
	report    func(string)
	conn      *nats.Conn
	js        jetstream.JetStream
	tasks     jetstream.Stream
	marks     jetstream.Stream
	results   jetstream.ObjectStore
	lastError atomic.Pointer[error] // that the servers reported without being asked
}

// Open connects to a queue, and makes its streams if there are none.
func Open(ctx context.Context, o Options) (*Queue, error) {
	q := &Queue{name: natsconn.HideSecrets(o.URLs), lease: cmp.Or(o.Lease, DefaultLease), report: o.Report}
	if q.report == nil {
		q.report = func(string) {}
	}
	options, err := natsconn.Options("mpbond-lab", o.CredsFile, o.CAFile)
	if err != nil {
		return nil, err
	}
	options = append(options, nats.Timeout(callTimeout), nats.ReconnectWait(retryWait),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { q.lastError.Store(&err) }))
	if q.conn, err = nats.Connect(o.URLs, options...); err != nil {
		return nil, q.explainOpening(err)
	}
	if err := q.openStreams(ctx); err != nil {
		q.Close()
		return nil, q.explainOpening(err)
	}
	return q, nil
}

// openStreams finds the streams, or makes them. An administrator may have made them with other
// limits or replicas.
func (q *Queue) openStreams(ctx context.Context) (err error) {
	if q.js, err = jetstream.New(q.conn, jetstream.WithDefaultTimeout(callTimeout)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := q.js.AccountInfo(ctx)
			return err
		},
		func(ctx context.Context) (err error) {
			q.tasks, err = q.openStream(ctx, jetstream.StreamConfig{Name: tasksStream,
				Subjects: []string{taskSubject + ">"}, Retention: jetstream.WorkQueuePolicy, MaxAge: retention})
			return err
		},
		func(ctx context.Context) (err error) {
			q.marks, err = q.openStream(ctx, jetstream.StreamConfig{Name: marksStream,
				Subjects: []string{markSubject + ">"}, MaxAge: retention, Duplicates: noteWindow})
			return err
		},
		func(ctx context.Context) (err error) {
			q.results, err = q.js.ObjectStore(ctx, bucket)
			if errors.Is(err, jetstream.ErrBucketNotFound) {
				q.results, err = q.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: bucket, TTL: retention})
			}
			return err
		},
	} {
		if err := natsconn.Ask(ctx, q.stopIfDenied(step)); err != nil {
			return err
		}
	}
	return nil
}

// stopIfDenied returns f with the servers' word that it is not allowed as its error: they do not answer then.
func (q *Queue) stopIfDenied(f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := f(ctx)
		if last := q.lastError.Load(); err != nil && last != nil && errors.Is(*last, nats.ErrPermissionViolation) {
			return *last
		}
		return err
	}
}

func (q *Queue) openStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := q.js.Stream(ctx, c.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = q.js.CreateStream(ctx, c)
	}
	return s, err
}

// Close closes the connection. Tasks that were taken and neither delivered nor returned go to other
// workers when their lease ends.
func (q *Queue) Close() { q.conn.Close() }

// Submit adds a task for workers of a version, unless the queue has one with its key. A key consists
// of words of letters and digits, separated by dots; the last one is not "returned".
func (q *Queue) Submit(ctx context.Context, version, key string, task []byte) error {
	return q.retry(ctx, func(ctx context.Context) error {
		return q.publishOnce(ctx, taskPrefix(version)+key, task)
	})
}

// State returns the keys of the tasks that wait for workers of a version or are being worked on, and
// of all tasks that have a result or were given up; and how many are being worked on.
func (q *Queue) State(ctx context.Context, version string) (open, finished map[string]bool, running int, err error) {
	err = q.retry(ctx, func(ctx context.Context) (err error) {
		// In this order: a task leaves the first set only after it has joined the second one.
		if open, err = listKeys(ctx, q.tasks, taskPrefix(version)); err != nil {
			return err
		}
		if finished, err = listKeys(ctx, q.marks, markSubject); err != nil {
			return err
		}
		maps.DeleteFunc(finished, func(key string, _ bool) bool { return strings.HasSuffix(key, returned) })
		running = 0
		workers, err := q.tasks.Consumer(ctx, workersOf(version))
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		if err == nil {
			running = workers.CachedInfo().NumAckPending
		}
		return err
	})
	return open, finished, running, err
}

// Result returns the result of a finished task that counts. A task that was given up has none: a fault of
// kind Limit.
func (q *Queue) Result(ctx context.Context, key string) (result []byte, err error) {
	err = q.retry(ctx, func(ctx context.Context) error {
		object, err := q.countedObject(ctx, key)
		if err != nil {
			return err
		}
		if object == lostMark {
			return fault.New(fault.Limit, fmt.Errorf("given up: %d workers ended without a word while they had it",
				maxLost), "look at the memory and the log of a worker's machine; then run again")
		}
		info, err := q.results.GetInfo(ctx, object)
		if errors.Is(err, jetstream.ErrObjectNotFound) || errors.Is(err, jetstream.ErrNameRequired) ||
			err == nil && info.Size > maxResult {
			return fault.New(fault.Integrity, fmt.Errorf("the result of task %s is not in the queue, or too large",
				key),
				"begin a new run in another directory: --dir DIR")
		}
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, transferTime(info.Size))
		defer cancel()
		result, err = q.results.GetBytes(ctx, object)
		return err
	})
	return result, err
}

// Remove removes tasks for workers of a version with their results.
func (q *Queue) Remove(ctx context.Context, version string, keys []string) error {
	return q.retry(ctx, func(ctx context.Context) error {
		for _, key := range keys {
			if err := q.tasks.Purge(ctx, jetstream.WithPurgeSubject(taskPrefix(version)+key)); err != nil {
				return err
			}
			object, err := q.countedObject(ctx, key)
			if err != nil {
				return err
			}
			if err := q.deleteObject(ctx, object); err != nil {
				return err
			}
			for _, subject := range []string{markSubject + key, markSubject + key + returned} {
				if err := q.marks.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// deleteObject deletes the object that a mark names, if it does.
func (q *Queue) deleteObject(ctx context.Context, object string) error {
	if object == "" || object == lostMark {
		return nil
	}
	if err := q.results.Delete(ctx, object); !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	return nil
}

// Take waits for a task for workers of a version and takes it. It refuses to wait while all tasks of
// the queue are for workers of other versions. The caller must call Deliver or Return.
func (q *Queue) Take(ctx context.Context, version string) (*Task, error) {
	var t *Task
	for t == nil {
		if err := q.retry(ctx, func(ctx context.Context) (err error) {
			if err := q.checkVersions(ctx, version); err != nil {
				return err
			}
			t, err = q.pullTask(ctx, version)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// checkVersions returns an error if there are tasks, and none for workers of this version.
func (q *Queue) checkVersions(ctx context.Context, version string) error {
	all, err := listKeys(ctx, q.tasks, taskSubject)
	if err != nil {
		return err
	}
	other := ""
	for key := range all {
		token, _, _ := strings.Cut(key, ".")
		if token == versionToken(version) {
			return nil
		}
		if text, err := base64.RawURLEncoding.DecodeString(token); err == nil {
			other = string(text)
		}
	}
	if other == "" {
		return nil
	}
	return fault.New(fault.Usage, fmt.Errorf("the queue has a run of version %.64q, and this program is version %.64q",
		other, version), "install the version of the run on this machine, or submit a run of this version first")
}

// pullTask takes a task if there is one soon; else it returns nil.
func (q *Queue) pullTask(ctx context.Context, version string) (*Task, error) {
	workers, err := q.tasks.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: workersOf(version),
		FilterSubject: taskPrefix(version) + ">", AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.lease,
		MaxAckPending: -1, InactiveThreshold: retention})
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	msg, err := workers.Next(jetstream.FetchContext(wait))
	if errors.Is(err, nats.ErrTimeout) || wait.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key := strings.TrimPrefix(msg.Subject(), taskPrefix(version))
	object, err := q.countedObject(ctx, key)
	if err == nil && object == "" {
		var isLost bool
		if isLost, err = q.hasLostWorkers(ctx, msg, key); isLost && err == nil {
			object, err = lostMark, q.publishOnce(ctx, markSubject+key, []byte(lostMark))
		}
	}
	if err != nil {
		_ = q.giveBack(ctx, msg, key)
		return nil, err
	}
	if object != "" { // its worker ended between mark and acknowledgement, or it was given up
		return nil, msg.Ack()
	}
	return q.newTask(msg, key), nil
}

// hasLostWorkers reports whether too many workers have ended with a task that they did not give back.
func (q *Queue) hasLostWorkers(ctx context.Context, msg jetstream.Msg, key string) (bool, error) {
	meta, err := msg.Metadata()
	if err != nil || meta.NumDelivered <= maxLost {
		return false, err
	}
	// each worker before this one has left one note or none
	subject := markSubject + key + returned
	info, err := q.marks.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, err
	}
	return meta.NumDelivered-1 >= maxLost+info.State.Subjects[subject], nil
}

// giveBack gives a task back. It notes that first: a worker that gives a task back is not lost.
func (q *Queue) giveBack(ctx context.Context, msg jetstream.Msg, key string) error {
	return errors.Join(q.noteNotLost(context.WithoutCancel(ctx), msg, key), msg.Nak())
}

// noteNotLost notes that the worker that got msg, a task, is not lost. If that is repeated within noteWindow, as after
// an answer that was lost, the servers keep one note.
func (q *Queue) noteNotLost(ctx context.Context, msg jetstream.Msg, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	_, err = q.js.Publish(ctx, markSubject+key+returned, nil,
		jetstream.WithMsgID(fmt.Sprintf("%s %d %d", key, meta.Sequence.Stream, meta.NumDelivered)))
	return err
}

// countedObject returns the object with the result of a task that counts; "": there is none.
func (q *Queue) countedObject(ctx context.Context, key string) (object string, err error) {
	object, _, err = q.readMark(ctx, key)
	return object, err
}

// readMark returns the object that the mark of a task names and the number of the mark in its stream; "" and 0: there
// is no mark.
func (q *Queue) readMark(ctx context.Context, key string) (object string, number uint64, err error) {
	m, err := q.marks.GetLastMsgForSubject(ctx, markSubject+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	return string(m.Data), m.Sequence, nil
}

// publishOnce stores a message unless its subject has one.
func (q *Queue) publishOnce(ctx context.Context, subject string, data []byte) error {
	return q.publishAfter(ctx, subject, data, 0)
}

// publishAfter stores a message unless the last one of its subject has another number; 0: there is none.
func (q *Queue) publishAfter(ctx context.Context, subject string, data []byte, last uint64) error {
	_, err := q.js.Publish(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(last))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return nil
	}
	return err
}

// listKeys returns what follows a prefix in the subjects of a stream's messages.
func listKeys(ctx context.Context, s jetstream.Stream, prefix string) (map[string]bool, error) {
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for subject := range info.State.Subjects {
		keys[strings.TrimPrefix(subject, prefix)] = true
	}
	return keys, nil
}

// retry calls f until it succeeds, the servers refuse, or ctx ends.
func (q *Queue) retry(ctx context.Context, f func(context.Context) error) error {
	reported := false
	for {
		err := f(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return context.Cause(ctx)
		case err == nil && reported:
			q.report(q.name + " answers again")
			return nil
		case err == nil || isFinal(err):
			return err
		case !reported:
			reported = true
			q.report(fmt.Sprintf("warning: %s does not answer (%v): trying again", q.name, q.reason(err)))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryWait):
		}
	}
}

// reason returns err with what the servers reported meanwhile, such as a missing permission.
func (q *Queue) reason(err error) error {
	if last := q.lastError.Load(); last != nil && err != *last {
		return fmt.Errorf("%w; %w", err, *last)
	}
	return err
}

// isFinal reports whether it makes no sense to try again.
func isFinal(err error) bool {
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return refused.Code != http.StatusServiceUnavailable
	}
	var f *fault.Error
	return errors.As(err, &f) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload)
}

// explainOpening adds what a user can do when a queue cannot be opened.
func (q *Queue) explainOpening(err error) error {
	var certificate *tls.CertificateVerificationError
	kind, hint := fault.Unreachable, "check that nats-server runs there, and --queue"
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fault.New(fault.Unsupported, fmt.Errorf("the NATS server at %s has no JetStream", q.name),
			"start the server with JetStream: nats-server -js")
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrPermissionViolation):
		kind, hint = fault.Permission, "name a file of valid credentials: --creds FILE"
	case errors.As(err, &certificate):
		kind, hint = fault.WrongKey, "name the certificate of the authority that signs for the servers: --ca FILE"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		kind, hint = fault.Usage, "check --creds and --ca"
	}
	return fault.New(kind, fmt.Errorf("queue %s: %w", q.name, q.reason(err)), hint)
}

// versionToken returns a version as a word of subjects.
func versionToken(version string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(version))
}

// taskPrefix returns the beginning of the subjects of tasks for workers of a version.
func taskPrefix(version string) string { return taskSubject + versionToken(version) + "." }

// workersOf returns the name of the consumer that all workers of a version share.
func workersOf(version string) string { return "workers-" + versionToken(version) }
