// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mpbond/base/natstest"
	"mpbond/base/waittest"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
	"mpbond/lab/exp"
	"mpbond/lab/queue"
)

// labProcess is a running mpbond-lab.
type labProcess struct {
	*exec.Cmd
	t      *testing.T
	stdout bytes.Buffer
	stderr clitest.LockedBuffer
	ended  chan struct{} // closed when it has ended
}

// startLab starts the program. It is killed when the test ends.
func startLab(t *testing.T, program string, args ...string) *labProcess {
	t.Helper()
	p := &labProcess{t: t, Cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	return p
}

// end sends a signal, unless it is 0, waits for the end of the program and returns its exit code.
func (p *labProcess) end(s syscall.Signal) int {
	p.t.Helper()
	_ = p.Process.Signal(s)
	waittest.Until(p.t, fmt.Sprint("the end of ", p.Args), func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	return p.ProcessState.ExitCode()
}

// evaluations returns the JSON objects that "exp run --json" printed, by row.
func evaluations(t *testing.T, out io.Reader) map[string]exp.Evaluation {
	t.Helper()
	all := map[string]exp.Evaluation{}
	for d := json.NewDecoder(bufio.NewReader(out)); ; {
		var e exp.Evaluation
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[e.Row] = e
	}
}

// checkCells checks that each planned transfer of a row counts once, and that those of a cell come from
// one machine. It returns the machines.
func checkCells(t *testing.T, dir, row string, planned int) []string {
	t.Helper()
	rec, err := exp.LoadRecord(dir, row, true)
	if err != nil {
		t.Fatal(err)
	}
	times, machines := map[string]int{}, map[string]bool{}
	for cell, results := range rec.Results {
		of := map[string]bool{}
		for _, r := range results {
			if !exp.IsCounted(r) {
				continue
			}
			if r.Machine == nil || r.Machine.Kernel == "" {
				t.Fatalf("%s: no machine: %+v", cell, r)
			}
			times[fmt.Sprintf("%s, %s, %d", cell, r.Scheme, r.Rep)]++
			of[r.Machine.Name], machines[r.Machine.Name] = true, true
		}
		if len(of) != 1 {
			t.Errorf("%s: %v", cell, of)
		}
	}
	for transfer, n := range times {
		if n != 1 {
			t.Errorf("%s counts %d times", transfer, n)
		}
	}
	if len(times) != planned || planned == 0 {
		t.Errorf("%s: %d of %d transfers", row, len(times), planned)
	}
	return slices.Sorted(maps.Keys(machines))
}

// Workers in several processes give the verdicts of a run on this machine. A worker that is killed
// loses nothing, one that is interrupted gives its cell back at once, and the run can be interrupted.
func TestExpWorkers(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	t.Parallel() // it judges no figures
	program, results := buildPrograms(t), t.TempDir()
	const row = "p10" // computed: the same everywhere
	args := []string{"exp", "run", row, "--quick", "--json", "--seed", "3"}
	alone := startLab(t, program, append(args, "--dir", t.TempDir())...)
	args = append(args, "--dir", results, "--queue", c.URLs())
	q, err := queue.Open(t.Context(), queue.Options{URLs: c.URLs()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	worker := func(name string) *labProcess {
		return startLab(t, program, "exp", "worker", "--queue", c.URLs(), "--name", name)
	}
	awaitCell := func(w *labProcess) {
		t.Helper()
		waittest.Until(t, "a cell", func() bool { return strings.Contains(w.stderr.String(), row+": ") })
	}
	run := startLab(t, program, args...)
	killed := worker("killed")
	waittest.Until(t, "a worker that stops in a cell", func() bool {
		_ = killed.Process.Signal(syscall.SIGSTOP)
		_, _, running, err := q.State(t.Context(), "v1")
		if err != nil {
			t.Fatal(err)
		}
		if running == 0 {
			_ = killed.Process.Signal(syscall.SIGCONT)
		}
		return running > 0
	})
	killed.end(syscall.SIGKILL)
	waittest.Until(t, "a worker that is interrupted in a cell", func() bool {
		w := worker("interrupted")
		awaitCell(w)
		if code := w.end(syscall.SIGINT); code != cli.ExitOK {
			t.Fatalf("%d: %s", code, w.stderr.String())
		}
		return strings.Contains(w.stderr.String(), "goes back to the queue")
	})
	if code := run.end(syscall.SIGINT); code != cli.ExitInterrupted ||
		!strings.Contains(run.stderr.String(), "run the same command to resume") {
		t.Errorf("interrupted run: %d %s", code, run.stderr.String())
	}
	first := worker("a")
	awaitCell(first)
	_ = first.Process.Signal(syscall.SIGSTOP) // it leaves some cells to the other one
	second := worker("b")
	awaitCell(second)
	_ = first.Process.Signal(syscall.SIGCONT)
	run = startLab(t, program, args...)
	if code := run.end(0); code != cli.ExitOK {
		t.Fatalf("the rest: %d %s", code, run.stderr.String())
	}
	for _, w := range []*labProcess{first, second} {
		if code := w.end(syscall.SIGINT); code != cli.ExitOK {
			t.Errorf("%d: %s", code, w.stderr.String())
		}
	}
	if code := alone.end(0); code != cli.ExitOK {
		t.Fatalf("alone: %d %s", code, alone.stderr.String())
	}
	got, want := evaluations(t, &run.stdout)[row], evaluations(t, &alone.stdout)[row]
	if got.Verdict != want.Verdict || len(got.Points) == 0 || fmt.Sprint(got.Points) != fmt.Sprint(want.Points) ||
		fmt.Sprint(got.Lines) != fmt.Sprint(want.Lines) {
		t.Errorf("%s: %+v\nalone %s: %+v", got.Verdict, got.Points, want.Verdict, want.Points)
	}
	machines := checkCells(t, exp.QuickDir(results), row, want.Counted)
	if !slices.Contains(machines, "a") || !slices.Contains(machines, "b") || got.Counted != want.Counted {
		t.Errorf("%v: %d of %d", machines, got.Counted, want.Counted)
	}
	waittest.UntilSuccess(t, func() error {
		open, finished, running, err := q.State(t.Context(), "v1")
		if err == nil && len(open)+len(finished)+running == 0 {
			return nil
		}
		return fmt.Errorf("the queue has %v, %v, %d: %w", open, finished, running, err)
	})
}

// A worker of another version, or without a usable queue, ends with an error.
func TestExpWorkerRefusals(t *testing.T) {
	c := natstest.Start(t, natstest.Options{})
	bare := natstest.Start(t, natstest.Options{NoJetStream: true})
	t.Parallel() // it judges no figures
	program := buildPrograms(t)
	q, err := queue.Open(t.Context(), queue.Options{URLs: c.URLs()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Submit(t.Context(), "v0", "run.a", nil); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		url  string
		says []string
		code int
	}{
		{c.URLs(), []string{`a run of version "v0"`, `version "v1"`, "hint: install the version"}, cli.ExitUsage},
		{bare.URLs(), []string{"has no JetStream", "hint: start the server with JetStream"}, cli.ExitFailure},
	} {
		w := startLab(t, program, "exp", "worker", "--queue", x.url)
		if code := w.end(0); code != x.code {
			t.Errorf("%s: %d %s", x.url, code, w.stderr.String())
		}
		for _, text := range x.says {
			if !strings.Contains(w.stderr.String(), text) {
				t.Errorf("no %q in %s", text, w.stderr.String())
			}
		}
	}
	if err := q.Remove(t.Context(), "v0", []string{"run.a"}); err != nil {
		t.Fatal(err)
	}
	w := startLab(t, program, "exp", "worker", "--queue", c.URLs(), "--idle", "1s")
	if code := w.end(0); code != cli.ExitOK || !strings.Contains(w.stderr.String(), "no cell for 1s") {
		t.Errorf("idle: %d %s", code, w.stderr.String())
	}
}

// Two workers measure cells with real packets on one machine, one after the other.
func TestExpWorkersWithRealPackets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for real-time priority")
	}
	for _, p := range []string{"ip", "curl", "nginx", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	c := natstest.Start(t, natstest.Options{})
	program, results := buildPrograms(t), t.TempDir()
	const row = "m13"
	run := startLab(t, program, "exp", "run", row, "--quick", "--json", "--dir", results, "--queue", c.URLs())
	var workers []*labProcess
	for _, name := range []string{"a", "b"} {
		workers = append(workers, startLab(t, program, "exp", "worker", "--queue", c.URLs(), "--name", name))
	}
	for _, w := range workers {
		go func() {
			select {
			case <-w.ended: // it was refused: nobody measures
				_ = run.Process.Signal(syscall.SIGINT)
			case <-run.ended:
				_ = w.Process.Signal(syscall.SIGINT)
			}
		}()
	}
	code := run.end(0)
	for _, w := range workers {
		w.end(0)
		if strings.Contains(w.stderr.String(), "not accurate enough") {
			t.Skipf("this machine is not accurate enough: NO CELL IS MEASURED: %s", w.stderr.String())
		}
	}
	e := evaluations(t, &run.stdout)[row]
	if code != cli.ExitOK || e.Counted == 0 {
		t.Fatalf("%d %s\n%s\n%s", code, run.stderr.String(), workers[0].stderr.String(), workers[1].stderr.String())
	}
	checkCells(t, exp.QuickDir(results), row, e.Counted)
	for _, w := range workers {
		if n := strings.Count(w.stderr.String(), "calibrating this machine"); n > 1 {
			t.Errorf("calibrated %d times: %s", n, w.stderr.String())
		}
	}
}
