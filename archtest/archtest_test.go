// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "mpbond"

// source is one Go file of the module.
type source struct {
	name    string // from the root of the module, with slashes
	dir     string
	test    bool
	lines   int
	syntax  *ast.File
	imports map[string]string // from path to the name in the file
}

// parseSources parses the whole module, once for all tests.
func parseSources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	fset := token.NewFileSet()
	eachFile(t, ".go", 500, func(name, text string) {
		f, err := parser.ParseFile(fset, filepath.FromSlash(name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s := &source{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), strings.Count(text, "\n"), f,
			map[string]string{}}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			s.imports[p] = path.Base(p)
			if base := path.Base(p); len(base) > 1 && base[0] == 'v' && base[1] >= '0' && base[1] <= '9' {
				s.imports[p] = path.Base(path.Dir(p))
			}
			if i.Name != nil {
				s.imports[p] = i.Name.Name
			}
		}
		all = append(all, s)
	})
	return all
}

// eachFile calls f with the name and text of each file of the tree whose name has that ending. There
// must be at least that many.
func eachFile(t *testing.T, ending string, least int, f func(name, text string)) {
	t.Helper()
	root := os.DirFS("..")
	found := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if isNoSource(name, d) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ending) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err == nil {
			found++
			f(name, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < least {
		t.Fatalf("%d files: this test looks in the wrong place", found)
	}
}

// isNoSource reports whether a folder holds no source that people write: hidden folders, test data
// and build results.
func isNoSource(name string, d fs.DirEntry) bool {
	base := path.Base(name)
	return d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" ||
		base == "out")
}

// isWithin reports whether dir is one of the folders or inside one.
func isWithin(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(r string) bool { return dir == r || strings.HasPrefix(dir, r+"/") })
}

// importViolation returns why a package in folder from must not import one in folder to, or "".
func importViolation(from, to string) string {
	f, okFrom := layerOf(from)
	l, okTo := layerOf(to)
	if okFrom && okTo && f.name != l.name && !slices.Contains(f.imports, l.name) {
		return "layer " + f.name + " must not import " + l.name + " (archtest/layers_test.go)"
	}
	for _, r := range importRules {
		if len(r.from) > 0 && !isWithin(from, r.from) || isWithin(from, r.except) {
			continue
		}
		if slices.ContainsFunc(r.from, func(f string) bool {
			return isWithin(from, []string{f}) &&
				isWithin(to, []string{f})
		}) {
			continue // a package and its own subfolders
		}
		if isWithin(to, r.to) || r.only != nil && !isWithin(to, r.only) {
			return r.reason
		}
	}
	return ""
}

func TestImports(t *testing.T) {
	for _, s := range parseSources(t) {
		for p := range s.imports {
			if to, ok := strings.CutPrefix(p, module+"/"); ok && !s.test {
				if why := importViolation(s.dir, to); why != "" {
					t.Errorf("%s imports %s: %s", s.name, to, why)
				}
			}
			for name, l := range libraries {
				if (p == name || strings.HasPrefix(p, name+"/")) && !s.test && !isWithin(s.dir, l.only) {
					t.Errorf("%s imports %s: %s", s.name, p, l.reason)
				}
			}
		}
	}
}

// TestImportRules checks the rules with imports that must be refused and with some that must pass.
func TestImportRules(t *testing.T) {
	for _, bad := range [][2]string{
		{"core/bond", "link/subflow"}, {"core/bond", "api"}, {"core/sched", "core/bond"}, {"link/wire", "core/bond"},
		{"link/tcp", "node/primary"}, {"link/subflow", "node/server"},
		{"node/primary", "node/helper"}, {"node/primary", "lab"}, {"lab/shaper", "core/bond"}, {"link/pipe", "api"},
		{"link/subflow", "pbe/transport"}, {"lab", "cmd/mpbond"}, {"cmd/mpbond", "lab"},
		{"cmd/mpbond-lab", "node/primary"}, {"cmd/cellwatch", "core/bond"},
		{"base/unit", "link/wire"}, {"lab/exp", "cmd/mpbond"}, {"api", "core/bond"}, {"lab/virtual", "core/bond"},
		{"lab/shaper", "pbe/cc"}, {"lab", "pbe/transport"}, {"core/bond", "pbe/cc"},
		{"pbe/transport", "link/subflow"}, {"onload/fetch", "link/subflow"}, {"node/intercept", "control/policy"},
		{"node/server", "onload/board"}, {"node/primary", "pbe/cc"}, {"base/store", "api"},
		{"control/policy", "core/bond"},
	} {
		if importViolation(bad[0], bad[1]) == "" {
			t.Errorf("%s may import %s", bad[0], bad[1])
		}
	}
	for _, good := range [][2]string{
		{"cmd/mpbond-lab", "lab"}, {"cmd/mpbond", "node/primary"}, {"core/bond", "core/sched"}, {"lab", "lab/shaper"},
		{"lab/exp", "lab"}, {"node/primary", "api"},
		{"link/subflow", "base/identity"}, {"pbe/transport", "pbe/cc"}, {"cmd/mpbond", "onload/board"},
		{"lab/virtual", "pbe/cc"}, {"lab", "pbe/cell"}, {"node/server", "core/bond"},
	} {
		if why := importViolation(good[0], good[1]); why != "" {
			t.Errorf("%s must not import %s: %s", good[0], good[1], why)
		}
	}
}

func TestPurePackages(t *testing.T) {
	for _, s := range parseSources(t) {
		if s.test || !isWithin(s.dir, purePackages) {
			continue
		}
		for p := range s.imports {
			if what, ok := pureImports[p]; ok {
				t.Errorf("%s imports %q (%s): %s", s.name, p, what, pureReason)
			}
		}
		for _, bad := range findImpurities(s) {
			t.Errorf("%s uses %s: %s", s.name, bad, pureReason)
		}
	}
}

// findImpurities lists the go statements and forbidden functions in s.
func findImpurities(s *source) (found []string) {
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "a go statement")
		case *ast.SelectorExpr:
			found = append(found, selectedNames(s, n, pureCalls)...)
		}
		return true
	})
	return found
}

// selectedNames returns the name that n selects if the list has it for its package.
func selectedNames(s *source, n *ast.SelectorExpr, list map[string]map[string]bool) (found []string) {
	if x, ok := n.X.(*ast.Ident); ok {
		for p, names := range list {
			if s.imports[p] == x.Name && names[n.Sel.Name] {
				found = append(found, p+"."+n.Sel.Name)
			}
		}
	}
	return found
}

// TestOneSanitiser checks that only base/text decides which characters can be shown.
func TestOneSanitiser(t *testing.T) {
	for _, s := range parseSources(t) {
		if s.test || s.dir == "base/text" {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if n, ok := n.(*ast.SelectorExpr); ok {
				for _, name := range selectedNames(s, n, characterTests) {
					t.Errorf("%s uses %s: use base/text, the one place for what terminals and pages may show", s.name,
						name)
				}
			}
			return true
		})
	}
}

func TestImpuritiesAreFound(t *testing.T) {
	const code = "package x\nimport (\"time\"; r \"math/rand/v2\")\n" +
		"func f() { go f(); _ = time.Now; r.IntN(5); r.New(nil); _ = time.Second }"
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := findImpurities(&source{syntax: f, imports: map[string]string{"time": "time", "math/rand/v2": "r"}})
	if want := []string{"a go statement", "time.Now", "math/rand/v2.IntN"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestPackageComments(t *testing.T) {
	comments, files := map[string][]string{}, map[string]string{}
	for _, s := range parseSources(t) {
		if s.test {
			continue
		}
		files[s.dir] = s.syntax.Name.Name
		if s.syntax.Doc == nil {
			continue
		}
		comments[s.dir] = append(comments[s.dir], s.name)
		want := "Package " + s.syntax.Name.Name + " "
		if s.syntax.Name.Name == "main" {
			want = "Command " + path.Base(s.dir) + " "
		}
		if !strings.HasPrefix(s.syntax.Doc.Text(), want) {
			t.Errorf("%s: the package comment must begin with %q", s.name, want)
		}
	}
	for dir, name := range files {
		if n := len(comments[dir]); n != 1 {
			t.Errorf("package %s in %s has %d package comments %v instead of one that says where it stands in the "+
				"data path", name, dir, n, comments[dir])
		}
	}
}

// exceptions is a list of allowed violations, with reasons. It also finds entries that are no
// longer needed.
type exceptions struct {
	list map[string]string
	used map[string]bool
}

func newExceptions(list map[string]string) *exceptions { return &exceptions{list, map[string]bool{}} }

func (e *exceptions) requireReason(t *testing.T, key, what string) {
	t.Helper()
	e.used[key] = true
	if e.list[key] == "" {
		t.Errorf("%s %s: split it, or give a reason in the list of exceptions", key, what)
	}
}

func (e *exceptions) reportUnused(t *testing.T) {
	t.Helper()
	for key := range e.list {
		if !e.used[key] {
			t.Errorf("%s is in the list of exceptions but needs none", key)
		}
	}
}

func TestSizes(t *testing.T) {
	files, calls, interfaces := newExceptions(longFiles), newExceptions(longCalls), newExceptions(wideInterfaces)
	for _, s := range parseSources(t) {
		if s.lines > maxLines {
			files.requireReason(t, s.name, "has "+strconv.Itoa(s.lines)+" lines, over "+strconv.Itoa(maxLines))
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if c := n.Type.Params.NumFields(); c > maxParams {
					calls.requireReason(t, s.name+":"+n.Name.Name,
						"has "+strconv.Itoa(c)+" parameters, over "+strconv.Itoa(maxParams))
				}
			case *ast.TypeSpec:
				if i, ok := n.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > maxMethods {
					interfaces.requireReason(t, s.name+":"+n.Name.Name,
						"has "+strconv.Itoa(i.Methods.NumFields())+" methods, over "+strconv.Itoa(maxMethods))
				}
			}
			return true
		})
	}
	files.reportUnused(t)
	calls.reportUnused(t)
	interfaces.reportUnused(t)
}
