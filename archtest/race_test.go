// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// TestPureHaveNoGoroutines checks that packages that .ci/test tests without the race detector, and
// their tests, start no goroutines.
func TestPureHaveNoGoroutines(t *testing.T) {
	m := regexp.MustCompile(`(?m)^pure=\(([^)]*)\)`).FindStringSubmatch(readFile(t, ".ci/test"))
	if m == nil {
		t.Fatal(".ci/test names no pure packages")
	}
	packages, found := setOf(strings.Fields(m[1])...), map[string]bool{}
	for _, s := range parseSources(t) {
		if !packages[s.dir] {
			continue
		}
		found[s.dir] = true
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s has a go statement: .ci/test must test %s with the race detector", s.name, s.dir)
			case *ast.SelectorExpr:
				switch n.Sel.Name {
				case "Go", "AfterFunc", "Parallel", "RunParallel":
					t.Errorf("%s calls %s, which starts a goroutine: .ci/test must test %s with the race detector",
						s.name, n.Sel.Name, s.dir)
				}
			}
			return true
		})
	}
	for p := range packages {
		if !found[p] {
			t.Errorf(".ci/test names the pure package %s, which does not exist", p)
		}
	}
}

// TestHeavyTestsExist checks that .ci/test runs each test that it skips under the race detector:
// the test exists, and only in packages where .ci/test also runs it without the race detector.
func TestHeavyTestsExist(t *testing.T) {
	script := readFile(t, ".ci/test")
	list := func(name string) map[string]bool {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + name + `=\(([^)]*)\)`).FindStringSubmatch(script)
		if m == nil {
			t.Fatalf(".ci/test has no list %s", name)
		}
		return setOf(strings.Fields(m[1])...)
	}
	heavy, packages, found := list("heavy"), list("heavy_packages"), map[string]bool{}
	packages["core/bond"] = true // never run with -skip, like the pure packages
	for p := range list("pure") {
		packages[p] = true
	}
	for _, s := range parseSources(t) {
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test || !heavy[f.Name.Name] {
				continue
			}
			found[f.Name.Name] = true
			if !packages[s.dir] {
				t.Errorf(".ci/test would never run %s.%s: rename it, or add %[1]s to heavy_packages", s.dir, f.Name.Name)
			}
		}
	}
	for name := range heavy {
		if !found[name] {
			t.Errorf(".ci/test names the test %s, which does not exist", name)
		}
	}
}
