// Command count reads the events of `go test -json` and prints what a person
// wants of them: a line for each package, all output of failed tests (of dumps of
// all goroutines what matters), what tests tell as attributes, skipped tests with
// their reasons, the names of failed ones, and at the end
// "N passed, N failed, N skipped".
// It stands behind `make test`, outside the data path. It exits with 1 if a
// test failed, none ran, or a package that it is called with was not tested.
//
// Packages that it is called with run real programs over emulated links in real
// time. A test of theirs that failed, without a data race, is made once more,
// alone, as the lab repeats transfers that other programs of the machine have
// disturbed; up to three times, where it skips itself as the machine is too busy for
// its figures. One that passes then does not fail the run; it is named at the end.
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

// event is one line of `go doc test2json`.
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

// tally is what became of the tests.
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
	failures                  map[test]int  // of top-level tests of those, with their parts
	noRetry                   map[test]bool // of those, whose failure stays one: a race, or a cut-off package
	flaky                     []test
}

func newTally(out io.Writer, again ...string) *tally {
	return &tally{out: out, retryPackages: again, output: map[test][]string{}, running: map[test]bool{}, failedPackages: map[string]bool{}, testedPackages: map[string]bool{}, buildOutput: map[string][]string{},
		failures: map[test]int{}, noRetry: map[test]bool{}}
}

// maxTries is how often a failed test is made again that skips itself.
const maxTries = 3

func main() {
	t := newTally(os.Stdout, os.Args[1:]...)
	t.readEvents(os.Stdin)
	t.retryFailed(func(f test) io.Reader {
		out, _ := exec.Command("go", "test", "-race", "-count=1", "-timeout", "5m", "-json", "-run", "^"+f.name+"$", f.pkg).Output()
		return bytes.NewReader(out)
	})
	if !t.printSummary() {
		os.Exit(1)
	}
}

// readEvents takes in events.
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

// retryFailed makes failed tests once more, as run does, which returns their events.
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

// topLevel is the test that a part belongs to.
func topLevel(key test) test {
	key.name, _, _ = strings.Cut(key.name, "/")
	return key
}

// recordFailure notes a failure, with what the test said.
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
		fmt.Fprint(t.out, line) // of the go command itself
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
		// Tests that never ended were cut off by a panic or the time limit.
		for key := range t.running {
			if key.pkg == e.Package {
				t.endTest("fail", key)
				t.noRetry[topLevel(key)] = true // tests after it were never made
			}
		}
		if !t.failedPackages[e.Package] { // it did not build, or TestMain failed it
			t.failed++
			t.failedNames = append(t.failedNames, e.Package)
		}
		fmt.Fprint(t.out, strings.Join(t.buildOutput[e.FailedBuild], ""), shortenDump(strings.Join(t.output[test{e.Package, ""}], "")))
	}
	if e.Action != "skip" { // a package without tests
		fmt.Fprintf(t.out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	}
	delete(t.output, test{e.Package, ""})
}

// maxNamed is how many failed tests are named at the end, at most.
const maxNamed = 50

// printSummary prints the end and tells whether all is well.
func (t *tally) printSummary() bool {
	for key := range t.running { // the go command itself was ended
		t.endTest("fail", key)
	}
	for _, p := range t.retryPackages {
		if !t.testedPackages[p] { // the go command failed before it came to them
			t.failed++
			t.failedNames = append(t.failedNames, p+" was not tested")
		}
	}
	slices.Sort(t.skippedNames)
	for _, s := range t.skippedNames {
		fmt.Fprintln(t.out, "skipped:", s)
	}
	for _, f := range t.flaky {
		fmt.Fprintf(t.out, "unsteady: %s %s failed once, and passed when it was made again\n", f.pkg, f.name)
	}
	for _, f := range t.failedNames[:min(maxNamed, len(t.failedNames))] { // the output is far above by now
		fmt.Fprintln(t.out, "failed:", f)
	}
	if more := len(t.failedNames) - maxNamed; more > 0 {
		fmt.Fprintf(t.out, "failed: %d more\n", more)
	}
	fmt.Fprintf(t.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed == 0 && t.passed > 0
}

// skipReason is what a test gave to Skip: its output without the frame around it.
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
