// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mpbond/link/wire"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// requiredModules lists the direct dependencies in go.mod, and the modules of tools.
func requiredModules(mod string) (list []string) {
	for line := range strings.Lines(mod) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "require ")
		f := strings.Fields(line)
		if len(f) >= 2 && strings.Contains(f[0], ".") && strings.HasPrefix(f[1], "v") &&
			!strings.HasSuffix(line, "// indirect") {
			list = append(list, f[0])
		}
		line = strings.TrimPrefix(line, "tool ") // in a block, only the path is on the line
		if module, _, ok := strings.Cut(line, "/cmd/"); ok && !strings.Contains(line, " ") {
			list = append(list, module)
		}
	}
	return list
}

// TestDependenciesAreDocumented checks that docs/dependencies.md has exactly one line, with a
// licence, for each direct dependency.
func TestDependenciesAreDocumented(t *testing.T) {
	want := requiredModules(readFile(t, "go.mod"))
	if len(want) < 10 {
		t.Fatalf("found %v: this test looks in the wrong place", want)
	}
	text, _, _ := strings.Cut(readFile(t, "docs/dependencies.md"), "## Debian")
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$")
	var got []string
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
		isEmpty := func(cell string) bool { return strings.TrimSpace(cell) == "" }
		if cells := strings.Split(m[2], "|"); len(cells) != 3 || slices.ContainsFunc(cells, isEmpty) {
			t.Errorf("docs/dependencies.md: `%s` needs its purpose, alternatives and licence", m[1])
		}
	}
	for _, m := range want {
		if !slices.Contains(got, m) {
			t.Errorf("docs/dependencies.md has no line for %s", m)
		}
	}
	for _, m := range got {
		if !slices.Contains(want, m) {
			t.Errorf("docs/dependencies.md has a line for %s, which go.mod does not require", m)
		}
	}
}

// TestRequired checks the reading of go.mod.
func TestRequired(t *testing.T) {
	const mod = "module x\n\nrequire a.b/c v1.0.0\n\nrequire (\n\td.e/f v0.1.0\n\tg.h/i v1.2.3 // indirect\n)\n\n" +
		"tool j.k/l/cmd/m\n\ntool (\n\tn.o/p/cmd/q\n)\n"
	if got := requiredModules(mod); !slices.Equal(got, []string{"a.b/c", "d.e/f", "j.k/l", "n.o/p"}) {
		t.Errorf("%v", got)
	}
}

// TestNamedTargetsExist checks that the Makefile has the targets that documents name.
func TestNamedTargetsExist(t *testing.T) {
	target := regexp.MustCompile(`(?m)^([a-z]+):`)
	var have []string
	for _, m := range target.FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		have = append(have, m[1])
	}
	out, err := exec.Command("git", "-C", "..", "ls-files", "*.md", ".ci").Output()
	if err != nil {
		t.Skipf("needs git to list the documents: %v", err)
	}
	named := regexp.MustCompile("(?m)(?:`|^ {4}|^)(?:[A-Z]+=\\S+ )?make(?: --no-print-directory)? ([a-z]+)")
	found := 0
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		for _, m := range named.FindAllStringSubmatch(readFile(t, name), -1) {
			found++
			if !slices.Contains(have, m[1]) {
				t.Errorf("%s names `make %s`, which the Makefile does not have", name, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d targets are named: this test looks in the wrong place", found)
	}
}

// frameTypes lists the constants of type Type in a file of package wire.
func frameTypes(t *testing.T, code string) (list []wire.Type) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "wire.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Type" && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				if n, err := strconv.ParseUint(lit.Value, 0, 8); err == nil {
					list = append(list, wire.Type(n))
				}
			}
		}
		return true
	})
	return list
}

// TestFramesAreDocumented checks that the table in docs/reference/wire.md lists exactly the frames
// of package wire, with numbers and names.
func TestFramesAreDocumented(t *testing.T) {
	want := frameTypes(t, readFile(t, "link/wire/wire.go"))
	if len(want) < 20 {
		t.Fatalf("found %v: this test looks in the wrong place", want)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\| (0x[0-9a-f]{2}) \| (\S+) \| \S.* \|$`).FindAllStringSubmatch(readFile(t,
		"docs/reference/wire.md"), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	var names []string
	for _, typ := range want {
		name := fmt.Sprintf("0x%02x %v", uint8(typ), typ)
		names = append(names, name)
		if !slices.Contains(got, name) {
			t.Errorf("docs/reference/wire.md does not list %s", name)
		}
	}
	for _, name := range got {
		if !slices.Contains(names, name) {
			t.Errorf("docs/reference/wire.md lists %s, which package wire does not have", name)
		}
	}
}

// TestNamedTestsExist checks that the tests named in docs/explanation/security.md exist, and all
// tests and benchmarks that any document names.
func TestNamedTestsExist(t *testing.T) {
	have := map[string]bool{}
	for _, s := range parseSources(t) {
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && s.test {
				parts := strings.Split(s.dir, "/")
				for i := range parts { // bond.TestX is short for core/bond.TestX
					have[strings.Join(parts[i:], "/")+"."+f.Name.Name] = true
				}
				have[f.Name.Name] = true
			}
			return true
		})
	}
	out, err := exec.Command("git", "-C", "..", "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("needs git to list the documents: %v", err)
	}
	alone := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		for _, m := range alone.FindAllString(readFile(t, name), -1) {
			if !have[m] {
				t.Errorf("%s names %s, which does not exist", name, m)
			}
		}
	}
	named := regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(readFile(t,
		"docs/explanation/security.md"), -1)
	for _, m := range named {
		if !have[m[1]] {
			t.Errorf("docs/explanation/security.md names %s, which does not exist", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("%d tests are named: this test looks in the wrong place", len(named))
	}
}

// TestTroubleshooting checks that docs/howto/troubleshoot.md explains each kind of error, and names
// only commands that exist.
func TestTroubleshooting(t *testing.T) {
	text := readFile(t, "docs/howto/troubleshoot.md")
	kinds := regexp.MustCompile(`Kind += "([a-z_]+)"`).FindAllStringSubmatch(readFile(t, "base/fault/fault.go"), -1)
	if len(kinds) < 10 {
		t.Fatalf("found kinds %q: this test looks in the wrong place", kinds)
	}
	for _, m := range kinds {
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/howto/troubleshoot.md does not explain errors of the kind %s", m[1])
		}
	}
	reference := readFile(t, "docs/reference/mpbond.md")
	for _, m := range regexp.MustCompile("`(?:sudo )?mpbond ([a-z]+)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(reference, "### mpbond "+m[1]+"\n") {
			t.Errorf("docs/howto/troubleshoot.md names `mpbond %s`, which docs/reference/mpbond.md does not have", m[1])
		}
	}
}
