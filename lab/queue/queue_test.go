// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/natstest"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
)

func TestMain(m *testing.M) {
	// An object that is stored quickly can leave a goroutine of nats.go behind: it reads the channel that it waits on
	// only after the publisher has been cleaned up.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

const version = "v1.2.3-dirty now"

// open opens a queue until the test ends.
func open(t *testing.T, o Options) *Queue {
	t.Helper()
	q, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

// submit adds tasks with these keys. The data of a task is its key.
func submit(t *testing.T, q *Queue, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := q.Submit(t.Context(), version, key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
}

// take takes the next task.
func take(t *testing.T, q *Queue) *Task {
	t.Helper()
	task, err := q.Take(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// deliver delivers a result and checks whether it counts.
func deliver(t *testing.T, task *Task, result string, counts bool) {
	t.Helper()
	if counted, err := task.Deliver(t.Context(), []byte(result)); err != nil || counted != counts {
		t.Fatalf("%s: counted %v, want %v; %v", task.key, counted, counts, err)
	}
}

// awaitState waits until a queue has tasks with these keys, and so many are being worked on. Servers
// process acknowledgements some time after they have received them.
func awaitState(t *testing.T, q *Queue, open, finished []string, running int) {
	t.Helper()
	sorted := func(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }
	waittest.UntilSuccess(t, func() error {
		o, f, r, err := q.State(t.Context(), version)
		if err == nil && sorted(o) == strings.Join(open, " ") && sorted(f) == strings.Join(finished, " ") &&
			r == running {
			return nil
		}
		return fmt.Errorf("open %v, finished %v, %d running, %v; want %v, %v, %d", sorted(o), sorted(f), r, err, open,
			finished, running)
	})
}

// checkNothing checks that a worker gets no task for some time.
func checkNothing(t *testing.T, q *Queue, wait time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if task, err := q.Take(ctx, version); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v", task, err)
	}
}

// countObjects returns how many results the servers have, counted or not.
func countObjects(t *testing.T, q *Queue) int {
	t.Helper()
	list, err := q.results.List(t.Context())
	if err != nil {
		return 0 // it has none
	}
	return len(list)
}

// Two workers get each task once. Results of any size arrive. What the submitter removes is gone.
func TestTwoWorkers(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	submitter := open(t, Options{URLs: c.URLs()})
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("run.%02d", i))
	}
	submit(t, submitter, keys...)
	submit(t, submitter, keys...) // they are there already
	awaitState(t, submitter, keys, nil, 0)
	big := bytes.Repeat([]byte("0123456789"), 100_000)
	var mu sync.Mutex
	taken := map[string]int{}
	var workers sync.WaitGroup
	for range 2 {
		q := open(t, Options{URLs: c.URLs()})
		workers.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				task, err := q.Take(ctx, version)
				cancel()
				if err != nil {
					return
				}
				mu.Lock()
				taken[string(task.Data())]++
				mu.Unlock()
				if counted, err := task.Deliver(t.Context(), append(big, task.Data()...)); !counted || err != nil {
					t.Errorf("%s: %v, %v", task.Data(), counted, err)
				}
			}
		})
	}
	workers.Wait()
	for _, key := range keys {
		result, err := submitter.Result(t.Context(), key)
		if taken[key] != 1 || err != nil || !bytes.Equal(result, append(big, key...)) {
			t.Errorf("%s: taken %d times, %d bytes, %v", key, taken[key], len(result), err)
		}
	}
	awaitState(t, submitter, nil, keys, 0)
	if err := submitter.Remove(t.Context(), version, keys[1:]); err != nil {
		t.Error(err)
	}
	awaitState(t, submitter, nil, keys[:1], 0)
	if n := countObjects(t, submitter); n != 1 {
		t.Errorf("%d results", n)
	}
	if _, err := submitter.Result(t.Context(), keys[1]); !fault.Is(err, fault.Integrity) {
		t.Errorf("removed: %v", err)
	}
}

// A task that is given back goes to another worker at once, that of a dead worker when its lease ends.
// A worker that shows signs of life keeps its task.
func TestTasksOfDeadWorkers(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	const lease = 3 * time.Second
	q := open(t, Options{URLs: c.URLs(), Lease: lease})
	submit(t, q, "run.a")
	dead := open(t, Options{URLs: c.URLs(), Lease: lease})
	other := open(t, Options{URLs: c.URLs(), Lease: lease})
	task := take(t, dead)
	awaitState(t, q, []string{"run.a"}, nil, 1)
	checkNothing(t, other, 2*lease)
	before := time.Now()
	task.Return()
	task = take(t, dead)
	if took := time.Since(before); took >= lease {
		t.Errorf("a task came back after %v", took)
	}
	lose(task)
	dead.Close()
	deliver(t, take(t, other), "result", true)
	awaitState(t, q, nil, []string{"run.a"}, 0)
}

// lose ends the signs of life of a task, as the end of its worker does.
func lose(t *Task) {
	t.stop()
	t.beating.Wait()
}

// A task that has ended three workers is given up. One that was given back is not, however often.
func TestTaskThatEndsWorkers(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	const lease = time.Second
	q := open(t, Options{URLs: c.URLs(), Lease: lease})
	submit(t, q, "run.a")
	var lost *Task
	for range maxLost - 1 {
		lost = take(t, q)
		lose(lost)
	}
	for range 2 * maxLost {
		take(t, q).Return()
	}
	last := take(t, q)
	lose(last)
	checkNothing(t, q, 3*lease)
	awaitState(t, q, nil, []string{"run.a"}, 0)
	if _, err := q.Result(t.Context(), "run.a"); !fault.Is(err, fault.Limit) ||
		!strings.Contains(err.Error(), "3 workers ended") || fault.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	deliver(t, last, "late", true) // it was not lost
	if result, err := q.Result(t.Context(), "run.a"); string(result) != "late" || err != nil {
		t.Errorf("%q, %v", result, err)
	}
	awaitState(t, q, nil, []string{"run.a"}, 0)
	deliver(t, lost, "later", false)
	if n := countObjects(t, q); n != 1 {
		t.Errorf("%d results", n)
	}
	if err := q.Remove(t.Context(), version, []string{"run.a"}); err != nil {
		t.Error(err)
	}
	submit(t, q, "run.a") // the next run
	task := take(t, q)
	awaitState(t, q, []string{"run.a"}, nil, 1)
	deliver(t, task, "result", true)
	awaitState(t, q, nil, []string{"run.a"}, 0)
}

// A worker that was cut off is not lost: its task is not given up, however often other workers get it.
func TestWorkerCutOff(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	const lease = time.Second
	q := open(t, Options{URLs: c.URLs(), Lease: lease})
	submit(t, q, "run.a")
	link, url := c.Nodes[0].NewLink(t)
	var tasks []*Task
	for range maxLost + 1 {
		task := take(t, open(t, Options{URLs: url, Lease: lease}))
		tasks = append(tasks, task)
		link.Cut(true)
		taken := take(t, q) // the lease has ended
		taken.Return()      // this is no loss either
		link.Restore()
		waittest.UntilSuccess(t, func() error {
			subject := markSubject + "run.a" + returned
			info, err := q.marks.Info(t.Context(), jetstream.WithSubjectFilter(subject))
			if err == nil && info.State.Subjects[subject] < uint64(2*len(tasks)) {
				err = fmt.Errorf("%d of %d workers are known not to be lost", info.State.Subjects[subject], 2*len(tasks))
			}
			return err
		})
	}
	deliver(t, take(t, q), "result", true)
	for _, task := range tasks {
		deliver(t, task, "second", false)
	}
}

// The result of a task that was removed meanwhile is dropped.
func TestRemovedTask(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	q := open(t, Options{URLs: c.URLs()})
	submit(t, q, "run.a")
	task := take(t, q)
	if err := q.Remove(t.Context(), version, []string{"run.a"}); err != nil {
		t.Error(err)
	}
	deliver(t, task, "result", false)
	awaitState(t, q, nil, nil, 0)
	if n := countObjects(t, q); n != 0 {
		t.Errorf("%d results", n)
	}
}

// What the first try to deliver has stored is deleted when the task is gone at the next try, unless it counts.
func TestTaskRemovedBetweenTries(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	q := open(t, Options{URLs: c.URLs()})
	for _, counts := range []bool{false, true} {
		submit(t, q, "run.a")
		task := take(t, q)
		object := task.key + ".object"
		if _, err := q.results.PutBytes(t.Context(), object, []byte("result")); err != nil {
			t.Fatal(err)
		}
		if err := q.Remove(t.Context(), version, []string{"run.a"}); err != nil {
			t.Fatal(err)
		}
		want := 0
		if counts { // the answer to the mark was lost, and another worker has found it
			if err := q.publishOnce(t.Context(), markSubject+task.key, []byte(object)); err != nil {
				t.Fatal(err)
			}
			want = 1
		}
		counted, err := task.storeResult(t.Context(), object, []byte("result"))
		if n := countObjects(t, q); err != nil || counted != counts || n != want {
			t.Errorf("counted %v, want %v; %d objects; %v", counted, counts, n, err)
		}
		task.Return()
	}
}

// If two workers finish a task, the first result counts. The other one is dropped.
func TestSecondResultIsDropped(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	const lease = time.Second
	q := open(t, Options{URLs: c.URLs(), Lease: lease})
	submit(t, q, "run.a")
	slow := take(t, q)
	lose(slow) // it works on, and cannot say so
	deliver(t, take(t, open(t, Options{URLs: c.URLs(), Lease: lease})), "first", true)
	deliver(t, slow, "second", false)
	if result, err := q.Result(t.Context(), "run.a"); string(result) != "first" || err != nil {
		t.Errorf("%q, %v", result, err)
	}
	if n := countObjects(t, q); n != 1 {
		t.Errorf("%d results", n)
	}
	awaitState(t, q, nil, []string{"run.a"}, 0)
}

// A worker that dies after it has stored its result, and before the task has left the queue, has
// finished it.
func TestFinishedTaskIsNotRepeated(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	q := open(t, Options{URLs: c.URLs(), Lease: time.Second})
	submit(t, q, "run.a", "run.b")
	task := take(t, q)
	if err := q.publishOnce(t.Context(), markSubject+task.key, []byte("an object")); err != nil {
		t.Fatal(err)
	}
	task.Return()
	next := take(t, q)
	if string(next.Data()) != "run.b" {
		t.Errorf("%s is repeated", next.Data())
	}
	deliver(t, next, "result", true)
	checkNothing(t, q, 2*time.Second)
	awaitState(t, q, nil, []string{"run.a", "run.b"}, 0)
}

// A submitter that comes again finds its tasks and results, also after the servers were restarted. Calls
// wait meanwhile, and say so.
func TestServersRestart(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	submitter := open(t, Options{URLs: c.URLs()})
	submit(t, submitter, "run.a", "run.b", "run.c")
	submitter.Close()
	var mu sync.Mutex
	var reports []string
	report := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, text)
	}
	worker := open(t, Options{URLs: c.URLs(), Lease: 2 * time.Second, Report: report})
	deliver(t, take(t, worker), "a", true)
	task := take(t, worker)
	c.Nodes[0].Kill()
	delivered := make(chan error)
	go func() {
		counted, err := task.Deliver(t.Context(), []byte("b"))
		if err == nil && !counted {
			err = errors.New("another worker was faster")
		}
		delivered <- err
	}()
	waittest.Until(t, "a report", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(reports) > 0
	})
	c.Nodes[0].Restart(t)
	if err := <-delivered; err != nil {
		t.Error(err)
	}
	if len(reports) != 2 || !strings.Contains(reports[0], "does not answer") ||
		!strings.HasSuffix(reports[1], c.URLs()+" answers again") {
		t.Errorf("%q", reports)
	}
	submitter = open(t, Options{URLs: c.URLs()})
	submit(t, submitter, "run.c")
	deliver(t, take(t, worker), "c", true)
	awaitState(t, submitter, nil, []string{"run.a", "run.b", "run.c"}, 0)
	for _, key := range []string{"run.a", "run.b", "run.c"} {
		if result, err := submitter.Result(t.Context(), key); string(result) != key[4:] || err != nil {
			t.Errorf("%s: %q, %v", key, result, err)
		}
	}
}

// Nodes that have no leader, since most of them are away, leave requests without an answer: the queue asks again.
func TestOpenWithoutLeader(t *testing.T) {
	c := natstest.Start(t, natstest.Options{Nodes: 3})
	for _, node := range c.Nodes[1:] {
		node.Pause()
	}
	var q *Queue
	opened := make(chan error, 1)
	go func() {
		var err error
		q, err = Open(t.Context(), Options{URLs: c.Nodes[0].URL})
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("without a leader: %v", err)
	case <-time.After(callTimeout + time.Second): // a single request has failed by then
	}
	for _, node := range c.Nodes[1:] {
		node.Resume()
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	submit(t, q, "run.a")
	deliver(t, take(t, q), "result", true)
}

// A worker refuses to wait beside a run of another version, and leaves it alone.
func TestOtherVersion(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	q := open(t, Options{URLs: c.URLs()})
	checkNothing(t, q, time.Second)
	submit(t, q, "run.a")
	_, err := q.Take(t.Context(), "v2")
	if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "v2") ||
		!strings.Contains(fault.HintOf(err), "install the version of the run") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	awaitState(t, q, []string{"run.a"}, nil, 0)
	// With tasks of both versions each worker gets its own ones.
	if err := q.Submit(t.Context(), "v2", "run.a", []byte("of v2")); err != nil {
		t.Fatal(err)
	}
	task, err := q.Take(t.Context(), "v2")
	if err != nil || string(task.Data()) != "of v2" {
		t.Fatal(task, err)
	}
	task.Return()
	if task := take(t, q); string(task.Data()) != "run.a" {
		t.Errorf("%s", task.Data())
	} else {
		task.Return()
	}
}

// Errors at the beginning say what to do, and hold no secrets.
func TestErrorsOfOpening(t *testing.T) {
	silent := "nats://me:secret@" + porttest.FreeAddress(t)
	bare := natstest.Start(t, natstest.Options{NoJetStream: true})
	guarded := natstest.Start(t, natstest.Options{Extra: "authorization { user: me, password: secret }\n"})
	secure := natstest.Start(t, natstest.Options{TLS: true})
	host := strings.TrimPrefix(guarded.URLs(), "nats://")
	for name, c := range map[string]struct {
		o    Options
		kind fault.Kind
		hint string
	}{
		"no server":      {Options{URLs: silent}, fault.Unreachable, "nats-server"},
		"no JetStream":   {Options{URLs: bare.URLs()}, fault.Unsupported, "nats-server -js"},
		"wrong password": {Options{URLs: "nats://me:secrets@" + host}, fault.Permission, "--creds"},
		"no authority":   {Options{URLs: secure.URLs()}, fault.WrongKey, "--ca"},
		"no file":        {Options{URLs: secure.URLs(), CAFile: filepath.Join(t.TempDir(), "x")}, fault.Usage, "--ca"},
	} {
		q, err := Open(t.Context(), c.o)
		if err == nil {
			q.Close()
		}
		if !fault.Is(err, c.kind) || !strings.Contains(fault.HintOf(err), c.hint) || strings.Contains(err.Error(),
			"secret") {
			t.Errorf("%s: %v, %s (%s)", name, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
	denied := natstest.Start(t, natstest.Options{Extra: "authorization { users = [{ user: me, password: secret, " +
		"permissions: { publish: { deny: \"$JS.API.>\" } } }] }\n"})
	began := time.Now()
	if _, err := Open(t.Context(), Options{URLs: "nats://me:secret@" + strings.TrimPrefix(denied.URLs(),
		"nats://")}); !fault.Is(err, fault.Permission) {
		t.Errorf("a user without rights: %v", err)
	}
	if took := time.Since(began); took > openTimeout/2 {
		t.Errorf("a user without rights is told so after %v", took)
	}
	open(t, Options{URLs: "nats://me:secret@" + host})
	open(t, Options{URLs: secure.URLs(), CAFile: secure.CAFile})
}

// Batches shows what a queue has, and Drop removes one batch of it, whatever state its tasks are in.
func TestDrop(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	q := open(t, Options{URLs: c.URLs()})
	expect := func(want ...string) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			list, err := q.Batches(t.Context())
			var got []string
			for _, b := range list {
				got = append(got, fmt.Sprintf("%s %s %d %d %s", b.Name, b.Version, b.Open, b.Finished,
					strings.Split(string(b.Task), ".")[0]))
				if time.Since(b.Since) > time.Hour {
					t.Errorf("%s since %v", b.Name, b.Since)
				}
			}
			if err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%q, %v; want %q", got, err, want)
			}
			return nil
		})
	}
	expect()
	if err := q.Drop(t.Context(), "old"); !fault.Is(err, fault.NotFound) {
		t.Errorf("dropped from an empty queue: %v", err)
	}
	submit(t, q, "old.a", "old.b", "old.c", "old.d")
	deliver(t, take(t, q), "result", true)
	take(t, q).Return()
	orphan := "old.d.x"
	if _, err := q.results.PutBytes(t.Context(), orphan, []byte("of a worker that ended then")); err != nil {
		t.Fatal(err)
	}
	submit(t, q, "new.a")
	expect("old "+version+" 3 1 old", "new "+version+" 1 0 new")
	for _, pattern := range []string{"*", ">", "", "old.a"} {
		if err := q.Drop(t.Context(), pattern); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	if err := q.Drop(t.Context(), "old"); err != nil {
		t.Error(err)
	}
	expect("new " + version + " 1 0 new")
	if n := countObjects(t, q); n != 0 {
		t.Errorf("%d results", n)
	}
	info, err := q.marks.Info(t.Context())
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("marks: %+v, %v", info, err)
	}
	deliver(t, take(t, q), "result", true)
	expect("new  0 1 ")
}

// A worker that says again that it is not lost, as the answer was lost, counts once.
func TestRepeatedNote(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	q := open(t, Options{URLs: c.URLs()})
	submit(t, q, "run.a")
	for workers := range uint64(2) {
		task := take(t, q)
		for range 2 {
			if err := q.noteNotLost(t.Context(), task.msg, task.key); err != nil {
				t.Fatal(err)
			}
		}
		subject := markSubject + "run.a" + returned
		info, err := q.marks.Info(t.Context(), jetstream.WithSubjectFilter(subject))
		if err != nil || info.State.Subjects[subject] != workers+1 {
			t.Errorf("%d workers: %+v, %v", workers+1, info, err)
		}
		task.Return()
	}
}
