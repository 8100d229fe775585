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
	m := regexp.MustCompile(`(?m)^pure=\((.*)\)`).FindStringSubmatch(readFile(t, ".ci/test"))
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
