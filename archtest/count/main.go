// SPDX-License-Identifier: Apache-2.0

// Command count reads the events of `go test -json` and prints a summary: one line for each
// package, all output of failed tests (dumps of goroutines shortened), attributes that tests set,
// skipped tests with their reasons, failed ones with their first messages, and at the end
// "N passed, N failed, N skipped". It stands behind `make test`, outside the data path. It exits
// with 1 if a test failed, none ran, or a package named on its command line was not tested.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
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
}

func newTestTally(out io.Writer) *tally {
	return &tally{out: out, output: map[test][]string{}, running: map[test]bool{}, failedPackages: map[string]bool{},
		testedPackages: map[string]bool{}, buildOutput: map[string][]string{}}
}

func main() {
	t := newTestTally(os.Stdout)
	t.readTestEvents(os.Stdin)
	t.requireTested(os.Args[1:])
	if !t.printSummary() {
		os.Exit(1)
	}
}

// readTestEvents reads events and adds their results.
func (t *tally) readTestEvents(events io.Reader) {
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

// handleLine takes a line of `go test -json`: it collects output and counts what ends.
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
			t.countEndedTest(e.Action, key)
		}
	}
}

// countEndedTest counts a test that has ended. It prints the output of one that failed.
func (t *tally) countEndedTest(action string, key test) {
	delete(t.running, key)
	switch action {
	case "pass":
		t.passed++
	case "fail":
		t.failed++
		t.failedNames = append(t.failedNames, key.pkg+" "+key.name+failReason(t.output[key]))
		t.failedPackages[key.pkg] = true
		fmt.Fprintf(t.out, "FAIL  %s %s\n%s", key.pkg, key.name, shortenDump(strings.Join(t.output[key], "")))
	case "skip":
		t.skipped++
		t.skippedNames = append(t.skippedNames, fmt.Sprintf("%s %s: %s", key.pkg, key.name, skipReason(t.output[key])))
	}
	delete(t.output, key)
}

// endPackage counts a package that has ended, and its tests that had not as failed. It prints the
// result, and the output if the package failed.
func (t *tally) endPackage(e event) {
	t.testedPackages[e.Package] = t.testedPackages[e.Package] || e.Action != "skip" // skip: it has no tests
	if e.Action == "fail" {
		// A panic or the time limit cut off tests that never ended.
		for key := range t.running {
			if key.pkg == e.Package {
				t.countEndedTest("fail", key)
			}
		}
		if !t.failedPackages[e.Package] { // it did not build, or TestMain failed it
			t.failed++
			t.failedNames = append(t.failedNames, e.Package)
		}
		fmt.Fprint(t.out, strings.Join(t.buildOutput[e.FailedBuild], ""),
			shortenDump(strings.Join(t.output[test{e.Package, ""}], "")))
	}
	if e.Action != "skip" {
		fmt.Fprintf(t.out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	}
	delete(t.output, test{e.Package, ""})
}

// requireTested counts each of the packages that was not tested as failed: a list of packages lacks
// it, or the go command ended before.
func (t *tally) requireTested(packages []string) {
	for _, p := range packages {
		if !t.testedPackages[p] {
			t.failed++
			t.failedNames = append(t.failedNames, p+" was not tested")
		}
	}
}

// maxNamed is the most failed tests named at the end.
const maxNamed = 50

// printSummary prints the end and reports whether all tests passed.
func (t *tally) printSummary() bool {
	for key := range t.running { // the go command itself was killed
		t.countEndedTest("fail", key)
	}
	slices.Sort(t.skippedNames)
	for _, s := range t.skippedNames {
		fmt.Fprintln(t.out, "skipped:", s)
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

// Limits for the messages of a failed test in the summary.
const (
	maxMessages      = 3
	maxMessageLength = 400 // bytes
)

var messagePattern = regexp.MustCompile(`^ +\S+_test\.go:\d+: `)

// failReason returns the first messages of a failed test, each after a line break. A part of the
// output then still shows why the test failed, if logs of processes push the messages out of it.
func failReason(output []string) string {
	var reason strings.Builder
	n := 0
	for _, line := range output {
		if !messagePattern.MatchString(line) {
			continue
		}
		if n++; n > maxMessages {
			break
		}
		line = strings.TrimSpace(line)
		reason.WriteString("\n    " + strings.ToValidUTF8(line[:min(maxMessageLength, len(line))], ""))
	}
	return reason.String()
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
