// Command count reads the events of `go test -json` and prints what a person
// wants of them: a line for each package, all output of failed tests, what
// tests tell as attributes, skipped tests with their reasons, and at the end
// "N passed, N failed, N skipped".
// It stands behind `make test`, outside the data path. It exits with 1 if a
// test failed or none ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
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
	out                     io.Writer
	passed, failed, skipped int
	output                  map[test][]string
	running                 map[test]bool
	skips                   []string
	bad                     map[string]bool // packages with a failed test
	builds                  map[string][]string
}

func main() {
	t := &tally{out: os.Stdout, output: map[test][]string{}, running: map[test]bool{}, bad: map[string]bool{}, builds: map[string][]string{}}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			t.line(line)
		}
		if err != nil {
			break
		}
	}
	if !t.close() {
		os.Exit(1)
	}
}

func (t *tally) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(t.out, line) // of the go command itself
		return
	}
	key := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		t.builds[e.ImportPath] = append(t.builds[e.ImportPath], e.Output)
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
		t.bad[key.pkg] = true
		fmt.Fprintf(t.out, "FAIL  %s %s\n%s", key.pkg, key.name, strings.Join(t.output[key], ""))
	case "skip":
		t.skipped++
		t.skips = append(t.skips, fmt.Sprintf("%s %s: %s", key.pkg, key.name, reason(t.output[key])))
	}
	delete(t.output, key)
}

func (t *tally) endPackage(e event) {
	if e.Action == "fail" {
		// Tests that never ended were cut off by a panic or the time limit.
		for key := range t.running {
			if key.pkg == e.Package {
				t.endTest("fail", key)
			}
		}
		if !t.bad[e.Package] { // it did not build, or TestMain failed it
			t.failed++
		}
		fmt.Fprint(t.out, strings.Join(t.builds[e.FailedBuild], ""), strings.Join(t.output[test{e.Package, ""}], ""))
	}
	if e.Action != "skip" { // a package without tests
		fmt.Fprintf(t.out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	}
	delete(t.output, test{e.Package, ""})
}

// close prints the end and tells whether all is well.
func (t *tally) close() bool {
	for key := range t.running { // the go command itself was ended
		t.endTest("fail", key)
	}
	slices.Sort(t.skips)
	for _, s := range t.skips {
		fmt.Fprintln(t.out, "skipped:", s)
	}
	fmt.Fprintf(t.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed == 0 && t.passed > 0
}

// reason is what a test gave to Skip: its output without the frame around it.
func reason(output []string) string {
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
