// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The tests of this file check rules of CONTRIBUTING.md.

const decisionsDir = "docs/adr"

var (
	decisionName  = regexp.MustCompile(`^(\d{4})-[a-z0-9-]+\.md$`)
	decisionDates = regexp.MustCompile(`^Date: \d{4}-\d\d-\d\d\. Status: (proposed|accepted|rejected|superseded)\b`)
	decisionLink  = regexp.MustCompile(`\[ADR (\d+)\]\((?:[\w./]*/)?(\d{4})-`)
)

// decisionMistakes returns what is wrong with the decision record that has this number.
func decisionMistakes(number int, text string) (list []string) {
	lines := strings.SplitN(text, "\n", 4)
	if title := fmt.Sprintf("# %d. ", number); !strings.HasPrefix(lines[0], title) {
		list = append(list, fmt.Sprintf("begins with %q, not %q", lines[0], title))
	}
	if len(lines) < 4 || lines[1] != "" || !decisionDates.MatchString(lines[2]) {
		list = append(list, "has no third line like \"Date: 2026-11-21. Status: accepted.\"")
	}
	at := 0
	for _, section := range []string{"Context", "Decision", "Consequences"} {
		if i := strings.Index(text, "\n## "+section+"\n"); i <= at {
			list = append(list, "has no section "+section+", or has it in another order")
		} else {
			at = i
		}
	}
	return list
}

// TestDecisions checks that decision records have consecutive numbers, a date, a status, their
// sections and a row in the list of decisions, and that links to them name the right number.
func TestDecisions(t *testing.T) {
	files, err := os.ReadDir("../" + decisionsDir)
	if err != nil || len(files) < 20 {
		t.Fatalf("%d records, %v: this test looks in the wrong place", len(files), err)
	}
	const list = "README.md"
	rows := readFile(t, decisionsDir+"/"+list)
	files = slices.DeleteFunc(files, func(f fs.DirEntry) bool { return f.Name() == list })
	for i, f := range files {
		m := decisionName.FindStringSubmatch(f.Name())
		if want := fmt.Sprintf("%04d", i+1); m == nil || m[1] != want {
			t.Fatalf("%s/%s: the name must begin with the next number, %s", decisionsDir, f.Name(), want)
		}
		text := readFile(t, decisionsDir+"/"+f.Name())
		for _, why := range decisionMistakes(i+1, text) {
			t.Errorf("%s/%s %s", decisionsDir, f.Name(), why)
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(text, fmt.Sprintf("# %d. ", i+1)), "\n")
		if row := fmt.Sprintf("| [%d](%s) | %s | ", i+1, f.Name(), title); !strings.Contains(rows, row) {
			t.Errorf("%s/%s has no row that begins with %q", decisionsDir, list, row)
		}
	}
	eachFile(t, ".md", 40, func(name, text string) {
		for _, m := range decisionLink.FindAllStringSubmatch(text, -1) {
			if n, _ := strconv.Atoi(m[2]); m[1] != strconv.Itoa(n) {
				t.Errorf("%s: a link to ADR %s leads to number %s", name, m[1], m[2])
			}
		}
	})
}

func TestDecisionMistakes(t *testing.T) {
	const good = "# 7. X\n\nDate: 2026-11-21. Status: accepted. Extends\n[ADR 5](0005-x.md).\n\n" +
		"## Context\n\nA.\n\n## Decision\n\nB.\n\n## Consequences\n\nC.\n"
	if list := decisionMistakes(7, good); list != nil {
		t.Errorf("%q", list)
	}
	for _, bad := range []string{"", "# 8." + good[4:], strings.Replace(good, "Date: ", "", 1),
		strings.Replace(good, "accepted", "fine", 1), strings.Replace(good, "\n\nDate", "\nDate", 1),
		strings.Replace(good, "2026-11-21", "today", 1), strings.Replace(good, "Decision", "Decisions", 1),
		strings.NewReplacer("Context", "Decision", "Decision", "Context").Replace(good)} {
		if decisionMistakes(7, bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestSkipsSayWhy checks that a test that is skipped says so: for the lack of a right or a program.
func TestSkipsSayWhy(t *testing.T) {
	for _, s := range parseSources(t) {
		for _, bad := range silentSkips(s.syntax) {
			t.Errorf("%s calls %s: say what the test lacks", s.name, bad)
		}
	}
}

func silentSkips(f *ast.File) (list []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && len(call.Args) == 0 &&
				(sel.Sel.Name == "Skip" || sel.Sel.Name == "SkipNow") {
				list = append(list, sel.Sel.Name)
			}
		}
		return true
	})
	return list
}

// sleepingLoops are loops of tests that may sleep outside a bubble of testing/synctest, as
// "file:function", with the reason: most make traffic or a fault of some length.
var sleepingLoops = map[string]string{
	"cmd/mpbond-lab/demo_test.go:TestDemo":           "interrupts each run at another moment",
	"e2e/attack_test.go:TestExhaustedServer":         "measures memory 30 s after each attack",
	"e2e/failure_test.go:silenceLinks":               "the length of a fault",
	"e2e/failure_test.go:TestServerKilled":           "the lengths of faults",
	"e2e/rig/plain.go:answerPlainly":                 "a server that paces its answer",
	"e2e/soak/programs_test.go:exchangeDatagrams":    "an app that sends as often as a call",
	"e2e/udp_lab_test.go:runPing":                    "an app that sends every 20 ms",
	"node/helper/meter_test.go:TestStatusShowsRates": "a sender that paces its data",
	"onload/fetch/overlap_test.go:TestOverlap":       "a server in virtual time, which answers late",
	"onload/fetch/retry_test.go:TestRetryAfterOfOne": "a device in virtual time, which is found late",
	"onload/playlist/rig_test.go:playNoting":         "a player in virtual time, whose buffer is full",
}

// TestTestsPollWithWaittest checks that tests wait for events, or poll with base/waittest: no loop
// sleeps or yields. Files that use testing/synctest may: there, sleep has no cost and no tolerance.
func TestTestsPollWithWaittest(t *testing.T) {
	loops := newExceptions(sleepingLoops)
	for _, s := range parseSources(t) {
		isTest := s.test || isWithin(s.dir, []string{"e2e"}) || strings.HasSuffix(path.Base(s.dir), "test")
		if _, virtual := s.imports["testing/synctest"]; !isTest || virtual || s.dir == "base/waittest" {
			continue
		}
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && loopSleeps(f) {
				loops.requireReason(t, s.name+":"+f.Name.Name, "has a loop that sleeps without base/waittest")
			}
		}
	}
	loops.reportUnused(t)
}

// loopSleeps reports whether a loop within f sleeps or yields.
func loopSleeps(f ast.Node) (found bool) {
	inLoop := 0
	var stack []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case nil:
			switch stack[len(stack)-1].(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				inLoop--
			}
			stack = stack[:len(stack)-1]
			return true
		case *ast.ForStmt, *ast.RangeStmt:
			inLoop++
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && inLoop > 0 &&
				(x.Name == "time" && n.Sel.Name == "Sleep" || x.Name == "runtime" && n.Sel.Name == "Gosched") {
				found = true
			}
		}
		stack = append(stack, n)
		return true
	})
	return found
}

// TestExportedNamesHaveComments checks that the comment of each exported type and function begins
// with its name, or that its group has a comment.
func TestExportedNamesHaveComments(t *testing.T) {
	for _, s := range parseSources(t) {
		if s.test {
			continue
		}
		for _, name := range namesWithoutComment(s.syntax) {
			t.Errorf("%s: %s needs a comment that begins with its name", s.name, name)
		}
	}
}

func namesWithoutComment(f *ast.File) (list []string) {
	check := func(name string, own, group *ast.CommentGroup) {
		article := regexp.MustCompile(`^(A |An |The )?` + name + `\b`)
		if ast.IsExported(name) && group == nil && !article.MatchString(own.Text()) {
			list = append(list, name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				check(d.Name.Name, d.Doc, nil)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok && d.Lparen.IsValid() {
					check(spec.Name.Name, spec.Doc, d.Doc)
				} else if ok {
					check(spec.Name.Name, d.Doc, nil)
				}
			}
		}
	}
	return list
}

// TestRulesFindMistakes checks that the rules above find mistakes, and only these.
func TestRulesFindMistakes(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import ("time"; "runtime")
type A int // behind it
// B is one.
type B int
// Some types.
type (C int; D int)
type ( // E is one.
	E int)
// f does it.
func F() { t.Skip(); t.Skip("no root"); t.SkipNow() }
// G sleeps once.
func G() { time.Sleep(1); for { time.Now() } }
func h() { for range 5 { if true { time.Sleep(1) } } }
func i() { for ; ; runtime.Gosched() {} }
`, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if got := namesWithoutComment(f); !slices.Equal(got, []string{"A", "E", "F"}) {
		t.Errorf("without comment: %q", got)
	}
	if got := silentSkips(f); !slices.Equal(got, []string{"Skip", "SkipNow"}) {
		t.Errorf("skipped: %q", got)
	}
	var sleeping []string
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && loopSleeps(d) {
			sleeping = append(sleeping, d.Name.Name)
		}
	}
	if !slices.Equal(sleeping, []string{"h", "i"}) {
		t.Errorf("sleeping: %q", sleeping)
	}
}

// TestCommandsForContributors checks that CONTRIBUTING.md names tests, packages and flags that exist.
func TestCommandsForContributors(t *testing.T) {
	root := os.DirFS("..")
	command := regexp.MustCompile(`(?m)^ {4}go test \./(\S+) -run '\^(\w+)\$'(.*)$`)
	found := command.FindAllStringSubmatch(readFile(t, "CONTRIBUTING.md"), -1)
	if len(found) == 0 {
		t.Error("no command is found: this test looks wrongly")
	}
	for _, m := range found {
		files, err := fs.Glob(root, m[1]+"/*_test.go")
		if err != nil || len(files) == 0 {
			t.Errorf("CONTRIBUTING.md: there are no tests in %s", m[1])
		}
		var text strings.Builder
		for _, name := range files {
			text.WriteString(readFile(t, name))
		}
		if !strings.Contains(text.String(), "func "+m[2]+"(") {
			t.Errorf("CONTRIBUTING.md: there is no test %s in %s", m[2], m[1])
		}
		for _, flag := range regexp.MustCompile(` -(\w+)`).FindAllStringSubmatch(m[3], -1) {
			if !regexp.MustCompile(`flag\.\w+\("` + flag[1] + `"`).MatchString(text.String()) {
				t.Errorf("CONTRIBUTING.md: the tests in %s have no flag -%s", m[1], flag[1])
			}
		}
	}
}
