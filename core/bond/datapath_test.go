// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDataPath: each function that docs/explanation/datapath.md names in its walk of one segment is
// here.
func TestDataPath(t *testing.T) {
	text, err := os.ReadFile("../../docs/explanation/datapath.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, found := strings.Cut(string(text), "\n## One segment by function names\n")
	walk, _, more := strings.Cut(walk, "\n## ")
	if !found || !more {
		t.Fatal("docs/explanation/datapath.md has no walk of one segment")
	}
	here := declared(t)
	named := regexp.MustCompile("`([A-Za-z]+\\.[A-Za-z]+|[a-z]+[A-Z][A-Za-z]*)`").FindAllStringSubmatch(walk, -1)
	if len(named) < 20 {
		t.Errorf("the walk names %d functions", len(named))
	}
	for _, m := range named {
		if !here[m[1]] {
			t.Errorf("docs/explanation/datapath.md names %s, which is not in core/bond", m[1])
		}
	}
}

// declared returns the package's functions, as Type.Method or name, types and variables.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	here := map[string]bool{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					typ := d.Recv.List[0].Type
					if star, ok := typ.(*ast.StarExpr); ok {
						typ = star.X
					}
					name = typ.(*ast.Ident).Name + "." + name
				}
				here[name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						here[s.Name.Name] = true
					case *ast.ValueSpec:
						here[s.Names[0].Name] = true
					}
				}
			}
		}
	}
	return here
}
