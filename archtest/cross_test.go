// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector would only slow this test down. make check runs it without.

package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestOtherMachines checks the types of the program and all its imports for the systems and
// processors of `make cross`. That takes seconds; compiling takes minutes.
func TestOtherMachines(t *testing.T) {
	for _, m := range []struct{ system, processor, tags string }{
		{"linux", "arm", ""}, {"linux", "mips", "router"}, // 32 bits
		{"darwin", "arm64", ""}, {"windows", "amd64", ""},
	} {
		t.Run(m.system+"/"+m.processor, func(t *testing.T) {
			t.Parallel()
			checkTypes(t, m.system, m.processor, m.tags)
		})
	}
}

// TestLeftOut checks that programs do not contain large packages that they do not use: plots in
// the product, and in the build for routers what docs/howto/install.md lists.
func TestLeftOut(t *testing.T) {
	for tags, out := range map[string][]string{
		"":       {"gonum.org/v1/plot", "google.golang.org/protobuf", "go/parser"},
		"router": {"gvisor.dev/gvisor", "github.com/aws/aws-sdk-go-v2", "mpbond/onload/playlist"},
	} {
		cmd := exec.Command("go", "list", "-deps", "-tags", tags, "./cmd/mpbond")
		cmd.Dir = ".."
		list, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out {
			if strings.Contains("\n"+string(list), "\n"+p) {
				t.Errorf("tags %q: the program contains %s", tags, p)
			}
		}
	}
}

// listedPackage is a package as `go list` describes it.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Standard        bool
	Module          *struct{ GoVersion string }
}

func checkTypes(t *testing.T, system, processor, tags string) {
	cmd := exec.Command("go", "list", "-deps", "-tags", tags,
		"-json=ImportPath,Dir,GoFiles,ImportMap,Standard,Module", "./cmd/mpbond")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	fset := token.NewFileSet()
	for d := json.NewDecoder(strings.NewReader(string(out))); ; { // imports come before their importers
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		config := types.Config{
			Importer: importerFunc(func(path string) (*types.Package, error) {
				if real, ok := p.ImportMap[path]; ok {
					path = real
				}
				if pkg := checked[path]; pkg != nil {
					return pkg, nil
				}
				return nil, fmt.Errorf("%s is not there", path)
			}),
			Sizes:            types.SizesFor("gc", processor),
			IgnoreFuncBodies: p.Standard, // the Go project tests them
			Error:            func(err error) { t.Error(err) },
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, fset, parsePackage(t, fset, p), nil)
		if t.Failed() {
			return // importers would only repeat the error
		}
	}
}

// parsePackage parses the files of a package concurrently.
func parsePackage(t *testing.T, fset *token.FileSet, p listedPackage) []*ast.File {
	if _, err := os.ReadDir(p.Dir); err != nil { // so that `go test` notices a new file and does not use a cached result
		t.Fatal(err)
	}
	files, errs := make([]*ast.File, len(p.GoFiles)), make([]error, len(p.GoFiles))
	var wg sync.WaitGroup
	for i, name := range p.GoFiles {
		wg.Go(func() {
			files[i], errs[i] = parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return files
}

type importerFunc func(string) (*types.Package, error)

// Import implements types.Importer.
func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
