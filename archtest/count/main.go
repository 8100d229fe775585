// SPDX-License-Identifier: Apache-2.0

// Command count reads the events of `go test -json` and prints a summary: one line for each
// package, all output of failed tests (dumps of goroutines shortened), attributes that tests set,
// skipped tests with their reasons, the names of failed ones, and at the end "N passed, N failed, N
// skipped". It stands behind `make test`, outside the data path. It exits with 1 if a test failed,
// none ran, or a package named on its command line was not tested.
//
// Packages named on its command line run real programs over emulated links in real time. A failed
// test of theirs is run once more, alone, unless it found a data race: other programs on the
// machine may have disturbed it. It is run up to three times if it skips itself because the machine
// is too busy. A test that passes then does not fail the run; it is named at the end.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of `go test -json`, see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
	Key, Value  string // of attributes that tests set
}

// test names a test, or a package if name is "".
type test struct{ pkg, name string }

// tally holds the results of the tests.
type tally struct {
	out                       io.Writer
	passed, failed, skipped   int
	output                    map[test][]string
	running                   map[test]bool
	skippedNames, failedNames []string
	failedPackages            map[string]bool // packages with a failed test
	testedPackages            map[string]bool // packages that were tested
	buildOutput               map[string][]string
	retryPackages             []string      // packages
	failures                  map[test]int  // of top-level tests of those, with their subtests
	noRetry                   map[test]bool // tests of those not to retry: after a race, or in a cut-off package
	flaky                     []test
}

func newTally(out io.Writer, again ...string) *tally {
	return &tally{out: out, retryPackages: again, output: map[test][]string{}, running: map[test]bool{},
		failedPackages: map[string]bool{}, testedPackages: map[string]bool{}, buildOutput: map[string][]string{},
		failures: map[test]int{}, noRetry: map[test]bool{}}
}

// maxTries is the most times that a failed test is run again if it skips itself.
const maxTries = 3

func main() {
	t := newTally(os.Stdout, os.Args[1:]...)
	t.readEvents(os.Stdin)
	t.retryFailed(func(f test) io.Reader {
		out, _ := exec.Command("go", "test", "-race", "-count=1", "-timeout", "5m", "-json", "-run", "^"+f.name+"$",
			f.pkg).Output()
		return bytes.NewReader(out)
	})
	if !t.printSummary() {
		os.Exit(1)
	}
}

// readEvents reads events and adds their results.
func (t *tally) readEvents(events io.Reader) {
	in := bufio.NewReader(events)
	for {
		line, err := in.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			t.handleLine(line)
		}
		if err != nil {
			return
		}
	}
}

// retryFailed runs failed tests again with run, which returns their events.
func (t *tally) retryFailed(run func(test) io.Reader) {
	for f, n := range t.failures {
		if t.noRetry[f] {
			continue
		}
		var second *tally
		for range maxTries {
			fmt.Fprintf(t.out, "again: %s %s\n", f.pkg, f.name)
			second = newTally(t.out)
			if second.readEvents(run(f)); second.skipped == 0 || second.failed > 0 {
				break
			}
		}
		if second.failed+second.skipped+len(second.running) == 0 && second.passed > 0 {
			t.failed -= n
			t.passed += second.passed
			t.failedNames = slices.DeleteFunc(t.failedNames, func(name string) bool {
				return name == f.pkg+" "+f.name || strings.HasPrefix(name, f.pkg+" "+f.name+"/")
			})
			t.flaky = append(t.flaky, f)
		}
	}
}

// topLevel returns the test that a subtest belongs to.
func topLevel(key test) test {
	key.name, _, _ = strings.Cut(key.name, "/")
	return key
}

// recordFailure records a failed test of a package to retry, with its output.
func (t *tally) recordFailure(key test, output string) {
	if !slices.Contains(t.retryPackages, key.pkg) {
		return
	}
	key = topLevel(key)
	t.failures[key]++
	for _, words := range []string{"DATA RACE", "race detected during", "panic: "} {
		t.noRetry[key] = t.noRetry[key] || strings.Contains(output, words)
	}
}

func (t *tally) handleLine(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(t.out, line) // written by the go command itself
		return
	}
	key := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		t.buildOutput[e.ImportPath] = append(t.buildOutput[e.ImportPath], e.Output)
	case "output":
		t.output[key] = append(t.output[key], e.Output)
	case "attr":
		fmt.Fprintf(t.out, "      %s: %s\n", e.Key, e.Value)
	case "run":
		t.running[key] = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e)
		} else {
			t.endTest(e.Action, key)
		}
	}
}

func (t *tally) endTest(action string, key test) {
	delete(t.running, key)
	switch action {
	case "pass":
		t.passed++
	case "fail":
		t.failed++
		t.failedNames = append(t.failedNames, key.pkg+" "+key.name)
		t.failedPackages[key.pkg] = true
		t.recordFailure(key, strings.Join(t.output[key], ""))
		fmt.Fprintf(t.out, "FAIL  %s %s\n%s", key.pkg, key.name, shortenDump(strings.Join(t.output[key], "")))
	case "skip":
		t.skipped++
		t.skippedNames = append(t.skippedNames, fmt.Sprintf("%s %s: %s", key.pkg, key.name, skipReason(t.output[key])))
	}
	delete(t.output, key)
}

func (t *tally) endPackage(e event) {
	t.testedPackages[e.Package] = true
	if e.Action == "fail" {
		// A panic or the time limit cut off tests that never ended.
		for key := range t.running {
			if key.pkg == e.Package {
				t.endTest("fail", key)
				t.noRetry[topLevel(key)] = true // tests after it did not run
			}
		}
		if !t.failedPackages[e.Package] { // it did not build, or TestMain failed it
			t.failed++
			t.failedNames = append(t.failedNames, e.Package)
		}
		fmt.Fprint(t.out, strings.Join(t.buildOutput[e.FailedBuild], ""),
			shortenDump(strings.Join(t.output[test{e.Package, ""}], "")))
	}
	if e.Action != "skip" { // a package without tests
		fmt.Fprintf(t.out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	}
	delete(t.output, test{e.Package, ""})
}

// maxNamed is the most failed tests named at the end.
const maxNamed = 50

// printSummary prints the end and reports whether all tests passed.
func (t *tally) printSummary() bool {
	for key := range t.running { // the go command itself was killed
		t.endTest("fail", key)
	}
	for _, p := range t.retryPackages {
		if !t.testedPackages[p] { // the go command failed before
			t.failed++
			t.failedNames = append(t.failedNames, p+" was not tested")
		}
	}
	slices.Sort(t.skippedNames)
	for _, s := range t.skippedNames {
		fmt.Fprintln(t.out, "skipped:", s)
	}
	for _, f := range t.flaky {
		fmt.Fprintf(t.out, "flaky: %s %s failed once and passed when run again\n", f.pkg, f.name)
	}
	for _, f := range t.failedNames[:min(maxNamed, len(t.failedNames))] { // the output scrolled away long ago
		fmt.Fprintln(t.out, "failed:", f)
	}
	if more := len(t.failedNames) - maxNamed; more > 0 {
		fmt.Fprintf(t.out, "failed: %d more\n", more)
	}
	fmt.Fprintf(t.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed == 0 && t.passed > 0
}

// skipReason returns the text that a test passed to Skip: its output without the frame around it.
func skipReason(output []string) string {
	var words []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			words = append(words, line)
		}
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}
