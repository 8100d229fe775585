// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// layer is a group of folders at the root of the module.
type layer struct {
	name    string
	folders []string
	purpose string
	// imports lists the other layers that its packages may import.
	imports []string
}

// layers are the layers of ARCHITECTURE.md from top to bottom. A package imports packages
// of its own layer and of the layers listed, which all stand below it. Tests may import
// what they need.
var layers = []layer{
	{"cmd", []string{"cmd"}, "the programs: flags, texts and wiring",
		[]string{"cli", "lab", "onload", "node", "pbe", "control", "core", "api", "link", "base"}},
	{"cli", []string{"internal"}, "what the programs share: the command line, charts of what was measured",
		[]string{"base"}},
	{"tests", []string{"e2e", "archtest"}, "tests of whole programs and of the tree",
		[]string{"lab", "pbe", "api", "base"}},
	{"lab", []string{"lab"}, "emulated networks and what is measured on them",
		[]string{"onload", "pbe", "core", "api", "link", "base"}},
	{"onload", []string{"onload"}, "whole items over several devices, without a bonding server",
		[]string{"control", "link", "base"}},
	{"node", []string{"node"}, "a running role: primary, helper or server",
		[]string{"control", "core", "api", "link", "base"}},
	{"pbe", []string{"pbe"}, "congestion control from the messages of mobile cells", []string{"link", "base"}},
	{"control", []string{"control"}, "what may be used: devices, links, policy", []string{"api", "link", "base"}},
	{"core", []string{"core"}, "which byte goes where", []string{"link", "base"}},
	{"api", []string{"api"}, "the local HTTP interface and the console", []string{"base"}},
	{"link", []string{"link"}, "bytes between two devices", []string{"base"}},
	{"base", []string{"base"}, "leaves that everybody uses", nil},
}

// layerOf returns the layer of the package in a folder.
func layerOf(dir string) (l layer, ok bool) {
	for _, l := range layers {
		if isWithin(dir, l.folders) {
			return l, true
		}
	}
	return layer{}, false
}

// TestLayersPointDown checks the table itself: each layer imports lower ones alone.
func TestLayersPointDown(t *testing.T) {
	rank := map[string]int{}
	for i, l := range layers {
		rank[l.name] = i
	}
	for i, l := range layers {
		for _, to := range l.imports {
			if below, ok := rank[to]; !ok || below <= i {
				t.Errorf("layer %s may import %s, which is not below it", l.name, to)
			}
		}
	}
}

// TestEveryPackageHasALayer keeps new folders at the root out, and requires a doc.go of
// each layer.
func TestEveryPackageHasALayer(t *testing.T) {
	for _, s := range parseSources(t) {
		if _, ok := layerOf(s.dir); !ok {
			t.Errorf("%s is in no layer: move it below one of the folders of ARCHITECTURE.md", s.name)
		}
	}
	for _, l := range layers {
		for _, folder := range l.folders {
			if slices.Contains([]string{"cmd", "e2e", "internal"}, folder) {
				continue // each command and test has its own comment
			}
			if _, err := os.Stat("../" + folder + "/doc.go"); err != nil {
				t.Errorf("layer %s has no doc.go: %v", l.name, err)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the picture of the layers into ARCHITECTURE.md")

const (
	architectureFile = "../ARCHITECTURE.md"
	pictureBegin     = "<!-- picture: make picture -->\n"
	pictureEnd       = "<!-- end of picture -->\n"
)

// TestPicture compares the picture in ARCHITECTURE.md with the imports of the tree.
func TestPicture(t *testing.T) {
	data, err := os.ReadFile(architectureFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), pictureBegin)
	old, after, foundEnd := strings.Cut(rest, pictureEnd)
	if !found || !foundEnd {
		t.Fatalf("%s has no lines %q and %q", architectureFile, pictureBegin, pictureEnd)
	}
	picture := drawLayers(parseSources(t))
	if old == picture {
		return
	}
	if !*update {
		t.Fatalf("%s shows other imports than the tree has: run make picture", architectureFile)
	}
	if err := os.WriteFile(architectureFile, []byte(before+pictureBegin+picture+pictureEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// isModule reports whether a folder is a module of its own.
func isModule(dir string) bool {
	_, err := os.Stat("../" + dir + "/go.mod")
	return err == nil
}

// drawLayers returns a Mermaid flowchart of the layers, their packages, and the number of
// imports between each two. Tests are left out.
func drawLayers(all []*source) string {
	packages, arrows := map[string]map[string]bool{}, map[[2]string]map[string]bool{}
	for _, s := range all {
		from, ok := layerOf(s.dir)
		if s.test || !ok || from.name == "tests" || strings.HasSuffix(s.dir, "test") || isModule(s.dir) {
			continue
		}
		if packages[from.name] == nil {
			packages[from.name] = map[string]bool{}
		}
		packages[from.name][s.dir] = true
		for p := range s.imports {
			dir, ours := strings.CutPrefix(p, module+"/")
			to, ok := layerOf(dir)
			if !ours || !ok || to.name == from.name {
				continue
			}
			arrow := [2]string{from.name, to.name}
			if arrows[arrow] == nil {
				arrows[arrow] = map[string]bool{}
			}
			arrows[arrow][s.dir+" "+dir] = true
		}
	}
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TB\n")
	for _, l := range layers {
		if packages[l.name] == nil {
			continue
		}
		var names []string
		for _, dir := range slices.Sorted(maps.Keys(packages[l.name])) {
			if name := strings.TrimPrefix(dir, l.folders[0]+"/"); name != l.folders[0] {
				names = append(names, name)
			}
		}
		fmt.Fprintf(&b, "    %s[\"<b>%s</b><br>%s\"]\n", l.name, l.name, strings.Join(names, ", "))
	}
	for _, from := range layers {
		for _, to := range layers {
			if n := len(arrows[[2]string{from.name, to.name}]); n > 0 {
				fmt.Fprintf(&b, "    %s -->|%d| %s\n", from.name, n, to.name)
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}
