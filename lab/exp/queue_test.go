// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/lab"
)

// memoryQueue is a queue in memory. Its workers work while the submitter asks for its state.
type memoryQueue struct {
	work                func()
	order               []string // keys of tasks that nobody has
	tasks, results      map[string][]byte
	lost                map[string]bool // keys of tasks that were given up
	delivered, returned int
}

func (q *memoryQueue) String() string {
	return fmt.Sprintf("%d tasks, %d results, %d delivered, %d returned", len(q.tasks), len(q.results), q.delivered,
		q.returned)
}

func newMemoryQueue() *memoryQueue {
	return &memoryQueue{work: func() {}, tasks: map[string][]byte{}, results: map[string][]byte{}}
}

func (q *memoryQueue) State(context.Context, string) (open, finished map[string]bool, running int, err error) {
	q.work()
	keys := func(m map[string][]byte) map[string]bool {
		all := map[string]bool{}
		for key := range m {
			all[key] = true
		}
		return all
	}
	finished = keys(q.results)
	maps.Copy(finished, q.lost)
	return keys(q.tasks), finished, 0, nil
}

func (q *memoryQueue) Submit(_ context.Context, _, key string, task []byte) error {
	q.tasks[key], q.order = task, append(q.order, key)
	return nil
}

func (q *memoryQueue) Result(_ context.Context, key string) ([]byte, error) {
	if q.lost[key] {
		return nil, fault.New(fault.Limit, errors.New("given up: 3 workers ended"), "")
	}
	return q.results[key], nil
}

func (q *memoryQueue) Remove(_ context.Context, _ string, keys []string) error {
	for _, key := range keys {
		delete(q.results, key)
		delete(q.lost, key)
	}
	return nil
}

// worker returns a worker on a machine with this name. It works until there is no task, and takes at most that many.
func (q *memoryQueue) worker(machine string, most int, rows ...Row) *Worker {
	return &Worker{Rows: rows, Version: "v1", Machine: machine, PrintLine: func(string) {}, Progress: func(string) {},
		Take: func(context.Context) (Task, error) {
			if most--; most < 0 || len(q.order) == 0 {
				return nil, context.DeadlineExceeded
			}
			key := q.order[0]
			q.order = q.order[1:]
			return &memoryTask{q, key}, nil
		}}
}

// memoryTask is a task of a memoryQueue.
type memoryTask struct {
	queue *memoryQueue
	key   string
}

func (m *memoryTask) Data() []byte { return m.queue.tasks[m.key] }

func (m *memoryTask) Deliver(_ context.Context, result []byte) (bool, error) {
	m.queue.results[m.key] = result
	m.queue.delivered++
	delete(m.queue.tasks, m.key)
	return true, nil
}

func (m *memoryTask) Return() {
	m.queue.returned++
	m.queue.order = append(m.queue.order, m.key)
}

// newTestRun returns a run of rows with its records in a directory; with a queue workers make it.
func newTestRun(dir string, q Queue, rows ...Row) Run {
	return Run{Rows: rows, Options: Options{Seed: 1}, Dir: dir, Jobs: 1, Version: "v1", Queue: q,
		PrintLine: func(string) {}, Progress: func(string, bool) {}}
}

// machinesOf returns the machines of the counted transfers of each cell; "" is the machine of the run.
func machinesOf(t *testing.T, dir string, row Row) map[string][]string {
	t.Helper()
	rec, err := LoadRecord(dir, row.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for cell, results := range rec.Results {
		for _, r := range results {
			name := ""
			if r.Machine != nil {
				name = r.Machine.Name
			}
			all[cell] = append(all[cell], name)
		}
	}
	return all
}

// Two workers get the same results as a run on this machine. Each cell has those of one worker, with
// its machine.
func TestMeasureByWorkers(t *testing.T) {
	row := twoPlaces()
	alone, err := newTestRun(t.TempDir(), nil, row).Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, q := t.TempDir(), newMemoryQueue()
	q.work = func() {
		for _, machine := range []string{"b", "a"} {
			if err := q.worker(machine, 1, rowB6MachineLimits(), row).Work(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	all, err := newTestRun(dir, q, row).Measure(t.Context())
	if err != nil || q.delivered != 2 || len(q.tasks)+len(q.results) != 0 {
		t.Fatalf("%v, %v", err, q)
	}
	if !reflect.DeepEqual(all[0].Lines, alone[0].Lines) || all[0].Verdict != alone[0].Verdict ||
		all[0].Counted != 8 || all[0].Planned != 8 {
		t.Errorf("%+v\nalone %+v", all[0], alone[0])
	}
	cells := machinesOf(t, dir, row)
	for cell, machines := range cells {
		if len(machines) != 4 || len(slices.Compact(slices.Clone(machines))) != 1 {
			t.Errorf("%s: %v", cell, machines)
		}
	}
	if cells["one"][0] == cells["other"][0] {
		t.Errorf("%v", cells)
	}
	this := lab.ThisMachine()
	want := fmt.Sprintf("a (Linux %s, %d processors), b (Linux %[1]s, %[2]d processors)", this.Kernel, this.Processors)
	if got := all[0].Provenance(); !strings.Contains(got, want) || all[0].kernelsText() != this.Kernel {
		t.Errorf("%s: no %s", got, want)
	}
	if strings.Contains(alone[0].Provenance(), "(Linux") {
		t.Error(alone[0].Provenance())
	}
}

// An interrupted run leaves its cells to the workers, and collects the rest when it comes again. When
// nothing is missing, the next one measures all cells again.
func TestQueueResumes(t *testing.T) {
	dir, q, row := t.TempDir(), newMemoryQueue(), twoPlaces()
	q.work = func() {
		if err := q.worker("a", 1, row).Work(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newTestRun(dir, q, row)
	r.Progress = func(text string, _ bool) {
		if strings.Contains(text, "is done by a") {
			cancel()
		}
	}
	whole := q.work
	q.work = func() {
		if ctx.Err() == nil {
			whole()
		}
	}
	if all, err := r.Measure(ctx); !errors.Is(err, context.Canceled) || all != nil || q.delivered != 1 {
		t.Fatalf("interrupted: %v, %v", err, q)
	}
	q.work = whole
	whole() // while there is no submitter
	for want, run := range []string{"the rest", "again"} {
		all, err := newTestRun(dir, q, row).Measure(t.Context())
		if err != nil || all[0].Counted != 8 || q.delivered != 2*(want+1) || len(q.tasks)+len(q.results) != 0 {
			t.Errorf("%s: %v, %v", run, err, q)
		}
	}
	if _, err := os.Stat(recordPath(dir, row.ID) + ".old"); err != nil {
		t.Error(err)
	}
	if _, err := newTestRun(dir, nil, row).Measure(t.Context()); err != nil {
		t.Error(err)
	}
}

// A cell that lacks transfers is measured anew rather than completed by another machine.
func TestCellsOfOneMachine(t *testing.T) {
	row := twoPlaces()
	for _, byWorkers := range []bool{true, false} {
		dir, q := t.TempDir(), newMemoryQueue()
		r := newTestRun(dir, nil, row)
		j, err := OpenJournal(dir, row.ID, r.newRunStamp(), true)
		if err != nil {
			t.Fatal(err)
		}
		first := lab.Result{Scheme: pbe, Seconds: 1}
		want := ""
		if byWorkers {
			q.work = func() {
				if err := q.worker("a", 9, row).Work(t.Context()); err != nil {
					t.Error(err)
				}
			}
			r.Queue, want = q, "a"
		} else {
			first.Machine = &lab.Machine{Name: "a"}
		}
		if err := errors.Join(j.Add("one", first), j.Close()); err != nil {
			t.Fatal(err)
		}
		all, err := r.Measure(t.Context())
		if err != nil || all[0].Counted != 8 {
			t.Errorf("%v, %+v", err, all)
		}
		for cell, machines := range machinesOf(t, dir, row) {
			if !slices.Equal(machines, []string{want, want, want, want}) {
				t.Errorf("%s: %q, want %q", cell, machines, want)
			}
		}
	}
}

// The failures of a worker are those of the run. The next run repeats only the cells that lack
// transfers.
func TestFailedCellOfWorker(t *testing.T) {
	fails := true
	row := twoPlaces()
	row.Cells = append(row.Cells, Cell{Name: "failing", Schemes: []string{pbe}, Reps: 1,
		Compute: func(Options, int) (map[string]float64, error) {
			if fails {
				return nil, errors.New("a bad day")
			}
			return map[string]float64{}, nil
		}})
	dir, q := t.TempDir(), newMemoryQueue()
	q.work = func() {
		if err := q.worker("a", 9, row).Work(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := newTestRun(dir, q, row).Measure(t.Context()); err == nil || !strings.Contains(err.Error(),
		"a bad day") ||
		q.delivered != 3 {
		t.Errorf("%v, %v", err, q)
	}
	fails = false
	if all, err := newTestRun(dir, q, row).Measure(t.Context()); err != nil || q.delivered != 4 || all[0].Counted != 9 {
		t.Errorf("%v, %v", err, q)
	}
}

// A cell that ends its workers makes the run fail with the other cells measured, and reports say so. The next run
// hands it out again.
func TestCellThatEndsWorkers(t *testing.T) {
	row, dir, q := twoPlaces(), t.TempDir(), newMemoryQueue()
	q.work = func() {
		if err := q.worker("a", 1, row).Work(t.Context()); err != nil {
			t.Error(err)
		}
		if q.delivered == 1 && len(q.order) > 0 {
			q.lost = map[string]bool{q.order[0]: true}
			delete(q.tasks, q.order[0])
			q.order = nil
		}
	}
	r := newTestRun(dir, q, row)
	var progress []string
	r.Progress = func(text string, _ bool) { progress = append(progress, text) }
	_, err := r.Measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "given up: 3 workers ended") || q.delivered != 1 || len(q.lost) > 0 {
		t.Errorf("%v, %v", err, q)
	}
	if !strings.Contains(strings.Join(progress, "\n"), "is given up: 3 workers ended") {
		t.Errorf("%q", progress)
	}
	all, err := EvaluateAll(dir, []Row{row})
	if err != nil || len(all) != 1 || len(all[0].Errors) != 1 || all[0].Counted != 4 ||
		!strings.Contains(all[0].Errors[0], "given up: 3 workers ended") {
		t.Fatalf("%v, %+v", err, all)
	}
	var page strings.Builder
	if err := WriteHTML(&page, all); err != nil || !strings.Contains(page.String(), all[0].Errors[0]) {
		t.Errorf("the report does not say that the cell was given up: %v", err)
	}
	if all, err := newTestRun(dir, q, row).Measure(t.Context()); err != nil || all[0].Counted != 8 {
		t.Errorf("the next run: %v, %+v", err, all)
	}
}

// A machine that cannot measure a cell gives it back and says why. Only cells with real packets need an
// accurate machine.
func TestRefusedWorker(t *testing.T) {
	real := Row{ID: "r1", Metrics: []Metric{Time}, Cells: []Cell{{Name: "real", Links: "8/10/5", Size: unit.MB,
		Schemes: []string{singleScheme}, Reps: 1}}}
	inaccurate := fault.New(fault.Unsupported, errors.New("late packets"), "")
	for name, c := range map[string]struct {
		row  Row
		task string
		kind fault.Kind
		says string
	}{
		"inaccurate machine": {real, `{"row":"r1","cell":"real","seed":1}`, fault.Unsupported,
			"r1: real: late packets"},
		"refused scheme": {twoPlaces(), `{"row":"t1","cell":"one","seed":1}`, fault.Unsupported,
			"cannot run the scheme cubic: no such control"},
		"no such cell": {twoPlaces(), `{"row":"t1","cell":"on","seed":1}`, fault.Integrity, `no cell "on"`},
		"no such row":  {real, `{"row":"t1","cell":"one","seed":1}`, fault.Integrity, `of row "t1"`},
		"no task":      {real, `x`, fault.Integrity, "a task of the queue"},
	} {
		q := newMemoryQueue()
		if err := q.Submit(t.Context(), "v1", "key", []byte(c.task)); err != nil {
			t.Fatal(err)
		}
		w := q.worker("a", 1, c.row)
		w.checkAccuracy = func(context.Context) error { return inaccurate }
		w.checkScheme = func(scheme string) error {
			if scheme == "cubic" {
				return errors.New("no such control")
			}
			return nil
		}
		err := w.Work(t.Context())
		if name == "inaccurate machine" && err != nil && !errors.Is(err, inaccurate) {
			t.Logf("%s: NOT CHECKED: %v", name, err)
			continue
		}
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || q.returned != 1 || q.delivered != 0 {
			t.Errorf("%s: %v, %v", name, err, q)
		}
	}
	q := newMemoryQueue()
	if err := q.Submit(t.Context(), "v1", "key", []byte(`{"row":"t1","cell":"one","seed":1}`)); err != nil {
		t.Fatal(err)
	}
	w := q.worker("a", 1, twoPlaces())
	w.checkAccuracy = func(context.Context) error { return inaccurate }
	if err := w.Work(t.Context()); err != nil || q.delivered != 1 {
		t.Errorf("a computed cell: %v, %v", err, q)
	}
	for _, version := range []string{"dev", "v1-dirty"} {
		w.Version = version
		r := newTestRun(t.TempDir(), q, twoPlaces())
		r.Version = version
		_, err := r.Measure(t.Context())
		for _, err := range []error{err, w.Work(t.Context())} {
			if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "does not identify") {
				t.Errorf("%s: %v", version, err)
			}
		}
	}
}

// An interrupted worker gives its cell back.
func TestInterruptedWorker(t *testing.T) {
	q := newMemoryQueue()
	if err := q.Submit(t.Context(), "v1", "key", []byte(`{"row":"t1","cell":"one","seed":1}`)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := q.worker("a", 9, twoPlaces())
	w.Progress = func(string) { cancel() }
	if err := w.Work(ctx); err != nil || q.returned != 1 || q.delivered != 0 || len(q.order) != 1 {
		t.Errorf("%v, %v", err, q)
	}
}

// What a worker delivers may have no control characters, and belongs to the cell that it measured.
func TestDeliveredRecords(t *testing.T) {
	dir, q, row := t.TempDir(), newMemoryQueue(), twoPlaces()
	q.work = func() {
		if err := q.worker("a\x1b[2J"+strings.Repeat("x", 100), 9, row).Work(t.Context()); err != nil {
			t.Error(err)
		}
	}
	all, err := newTestRun(dir, q, row).Measure(t.Context())
	if err != nil || len(all[0].Machines) != 1 || !strings.HasPrefix(all[0].Machines[0].Name, "a?[2Jxxx") ||
		len(all[0].Machines[0].Name) > 70 {
		t.Errorf("%v, %+v", err, all)
	}
	q.work = func() {
		for _, key := range slices.Sorted(maps.Keys(q.tasks)) {
			q.results[key] = []byte("no record")
			delete(q.tasks, key)
		}
	}
	if _, err := newTestRun(t.TempDir(), q, row).Measure(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "the delivered record") {
		t.Error(err)
	}
}
