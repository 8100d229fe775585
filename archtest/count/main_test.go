// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
)

func runCount(lines ...string) (ok bool, out string) {
	var b strings.Builder
	t := newTestTally(&b)
	for _, l := range lines {
		t.handleLine(l + "\n")
	}
	ok = t.printSummary()
	return ok, b.String()
}

func TestCount(t *testing.T) {
	const pass = `{"Action":"pass","Package":"p","Test":"A"}`
	for name, c := range map[string]struct {
		lines []string
		ok    bool
		want  []string
	}{
		"nothing": {nil, false, []string{"0 passed, 0 failed, 0 skipped\n"}},
		"pass": {[]string{`{"Action":"run","Package":"p","Test":"A"}`, pass,
			`{"Action":"pass","Package":"p","Elapsed":1.5}`}, true, []string{"pass  p (1.5 s)\n1 passed, 0 failed"}},
		"attr": {[]string{pass,
			`{"Action":"attr","Package":"p","Test":"A","Key":"transfers","Value":"10 in 1 s"}`}, true,
			[]string{"      transfers: 10 in 1 s\n1 passed"}},
		"skip": {[]string{pass, `{"Action":"output","Package":"p","Test":"B","Output":"=== RUN   B\n"}`,
			`{"Action":"output","Package":"p","Test":"B","Output":"    b_test.go:5: needs root\n"}`,
			`{"Action":"skip","Package":"p","Test":"B"}`},
			true, []string{"skipped: p B: b_test.go:5: needs root\n1 passed, 0 failed, 1 skipped\n"}},
		"fail": {[]string{pass, `{"Action":"output","Package":"p","Test":"B","Output":"boom\n"}`,
			`{"Action":"fail","Package":"p","Test":"B"}`, `{"Action":"fail","Package":"p"}`},
			false, []string{"FAIL  p B\nboom\n", "failed: p B\n1 passed, 1 failed, 0 skipped"}},
		"reason": {[]string{pass, `{"Action":"output","Package":"p","Test":"B","Output":"    b_test.go:7: got 1\n"}`,
			`{"Action":"output","Package":"p","Test":"B","Output":"        want 2\n"}`,
			`{"Action":"fail","Package":"p","Test":"B"}`, `{"Action":"fail","Package":"p"}`},
			false, []string{"failed: p B\n    b_test.go:7: got 1\n1 passed, 1 failed, 0 skipped"}},
		"build": {[]string{pass, `{"ImportPath":"q [q.test]","Action":"build-output","Output":"q.go:1: oops\n"}`,
			`{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}`},
			false, []string{"q.go:1: oops", "1 passed, 1 failed"}},
		"leak": {[]string{pass, `{"Action":"output","Package":"p","Output":"found a goroutine\n"}`,
			`{"Action":"fail","Package":"p"}`}, false, []string{"found a goroutine", "failed: p\n1 passed, 1 failed"}},
		"panic": {[]string{`{"Action":"run","Package":"p","Test":"A"}`,
			`{"Action":"output","Package":"p","Test":"A","Output":"panic: x\n"}`, `{"Action":"fail","Package":"p"}`},
			false, []string{"panic: x", "0 passed, 1 failed"}},
		"killed": {[]string{pass, `{"Action":"run","Package":"p","Test":"C"}`}, false, []string{"1 passed, 1 failed"}},
		"no test": {[]string{pass, `{"Action":"skip","Package":"q"}`, `go: downloading x`}, true,
			[]string{"go: downloading x\n1 passed, 0 failed, 0 skipped\n"}},
	} {
		ok, out := runCount(c.lines...)
		if ok != c.ok {
			t.Errorf("%s: ok is %v", name, ok)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, out)
			}
		}
	}
}

// TestNotTested checks that a named package without the result of a test fails the run.
func TestNotTested(t *testing.T) {
	const tested = `{"Action":"pass","Package":"p","Test":"A"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n"
	for name, c := range map[string]struct {
		events, want string
	}{
		"tested": {tested + `{"Action":"pass","Package":"q"}`, "1 passed, 0 failed"},
		"tested in parts": {tested + `{"Action":"pass","Package":"q"}` + "\n" + `{"Action":"skip","Package":"q"}`,
			"1 passed, 0 failed"},
		"failed":        {tested + `{"Action":"fail","Package":"q"}`, "failed: q\n1 passed, 1 failed"},
		"not tested":    {tested, "failed: q was not tested\n1 passed, 1 failed"},
		"without tests": {tested + `{"Action":"skip","Package":"q"}`, "failed: q was not tested\n1 passed, 1 failed"},
	} {
		var b strings.Builder
		y := newTestTally(&b)
		y.readTestEvents(strings.NewReader(c.events))
		y.requireTested([]string{"p", "q"})
		if ok := y.printSummary(); ok != strings.Contains(c.want, " 0 failed") || !strings.Contains(b.String(), c.want) {
			t.Errorf("%s: %v\n%s", name, ok, b.String())
		}
	}
}

// TestDump checks that a dump is shortened to its relevant stacks, each once, and within limits,
// and that other output stays unchanged.
func TestDump(t *testing.T) {
	const (
		head   = "    x_test.go:5: before\npanic: test timed out after 10m0s\n\trunning tests:\n\t\tTestX (9m59s)\n\n"
		alarm  = "goroutine 9 [running]:\ntesting.(*M).startAlarm.func1()\n\t/go/src/testing/testing.go:1 +0x1\n\n"
		worker = "goroutine %d [select, 9 minutes, synctest bubble 5]:\nmpbond/helper.(*Helper).keep(0xc00%d)\n" +
			"\t/x/helper/run.go:7 +0x%d\ncreated by mpbond/helper.New in goroutine %d\n\t/x/helper/helper.go:1 +0x5\n\n"
		hung = "goroutine 8 [chan receive (durable), 9 minutes]:\nmpbond/helper.TestX.func1(0xc001)\n" +
			"\t/x/helper/helper_test.go:3 +0x9\n\n"
		tail = "goroutine 5 [chan receive]:\ntesting.(*T).Run(0xc1)\n\t/go/src/testing/testing.go:2 +0x2\n" +
			"main.main()\n\t_testmain.go:9 +0x3"
	)
	dump := head + alarm
	for i := range 500 {
		dump += fmt.Sprintf(worker, 100+i, i, i, i)
	}
	got := shortenDump(dump + hung + tail)
	want := head + `
1 × goroutine [chan receive (durable)]:
mpbond/helper.TestX.func1
	/x/helper/helper_test.go:3

500 × goroutine [select]:
mpbond/helper.(*Helper).keep
	/x/helper/run.go:7
created by mpbond/helper.New
	/x/helper/helper.go:1

2 more goroutines are not shown
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	dump = head
	for i := range 500 { // all different
		dump += strings.ReplaceAll(fmt.Sprintf(worker, i, i, i, i), "run.go:7", fmt.Sprintf("run.go:%d", i))
	}
	if got := shortenDump(dump); strings.Count(got, "× goroutine") != maxStacks ||
		!strings.Contains(got, fmt.Sprint(500-maxStacks, " more goroutines")) {
		t.Errorf("got\n%s", got)
	}
	if got := shortenDump(head); got != head {
		t.Errorf("got\n%s", got)
	}
	if ok, out := runCount(`{"Action":"run","Package":"p","Test":"A"}`,
		`{"Action":"output","Package":"p","Test":"A","Output":"panic: x\n\n"}`,
		`{"Action":"output","Package":"p","Test":"A","Output":"goroutine 1 [running]:\n"}`,
		`{"Action":"output","Package":"p","Test":"A","Output":"mpbond/p.A()\n"}`,
		`{"Action":"fail","Package":"p"}`); ok || !strings.Contains(out,
		"panic: x\n\n\n1 × goroutine [running]:\nmpbond/p.A()\n") {
		t.Error(out)
	}
}
