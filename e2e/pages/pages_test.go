// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package pages runs the commands of the documents as written. Each page is a scene: its commands
// run in order, on the devices and in the clone of the repository that the page describes.
//
//	pages_test.go    all commands of all pages
//	tables_test.go   commands that are not run, and what is put in place of placeholders
//	before_test.go   what a reader of a page has, and has done
//	scene_test.go    the commands of one page
//	service_test.go  commands that run until they are stopped
//	device_test.go   devices with their own file systems
//	site_test.go     the web sites and the radio that pages name
package pages

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mpbond/e2e/rig"
	"mpbond/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // unless go test has -parallel: most commands wait
	rig.Main(m, runProgram)
}

// root is the root of the repository.
const root = "../.."

// clone is the node of commands that run in the clone of the repository, on this machine.
const clone = ""

// page is a document with commands, or a part of one whose commands need no others.
type page struct {
	name     string // path in the repository
	commands []command
}

// command is a command line of a page.
type command struct {
	clitest.Command
	page string
	node string // where it runs: a node of the lab, or clone
}

func (c command) String() string { return fmt.Sprintf("%s:%d: %s", c.page, c.Line, c.Text) }

// reason returns why the command is not run, or "".
func (c command) reason() reason {
	if r := notRun[c.page+": "+c.Text]; r != "" {
		return r
	}
	if strings.HasPrefix(c.Text, "mpbond fleet ") || strings.Contains(c.Text, "--fleet ") {
		return ofFleet
	}
	return notRun[c.Text]
}

// countCloneCommands returns the number of commands that run in the clone. They take longest, since
// they build or measure.
func (p page) countCloneCommands() (n int) {
	for _, c := range p.commands {
		if c.node == clone && c.reason() == "" {
			n++
		}
	}
	return n
}

// readPages returns the pages that have commands. Decisions, evidence and the changelog quote
// commands of their time.
func readPages(t *testing.T) (pages []page) {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("needs git to list the documents: NO COMMAND OF ANY PAGE IS RUN: %v", err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "docs/adr/") || strings.HasPrefix(name, "docs/evidence/") ||
			name == "CHANGELOG.md" || name == "docs/howto/fleet.md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		commands := clitest.Commands(string(text))
		for i, c := range commands {
			if i == 0 || partsBegin[name+": "+c.Text] {
				pages = append(pages, page{name: name})
			}
			p := &pages[len(pages)-1]
			p.commands = append(p.commands, command{Command: c, page: name})
		}
	}
	for i := range pages {
		pages[i].chooseNodes()
	}
	return pages
}

// TestTables checks that the tables of this package name only commands that pages have.
func TestTables(t *testing.T) {
	found, all, count := map[string]bool{}, []string{}, map[reason]int{}
	for _, p := range readPages(t) {
		found[p.name] = true
		for _, c := range p.commands {
			found[c.Text] = true
			all = append(all, c.Text)
			count[c.reason()]++
			found[c.page+": "+c.Text] = true
		}
	}
	if len(all) < 200 {
		t.Errorf("%d commands found: the search is broken", len(all))
	}
	for text := range notRun {
		if !found[text] {
			t.Errorf("notRun has %q, which no page has", text)
		}
	}
	for _, text := range append(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(partsBegin))...) {
		if !found[text] {
			t.Errorf("before or partsBegin has %q, which no page has", text)
		}
	}
	for _, name := range append(slices.Collect(maps.Keys(startsWithoutBond)), slices.Collect(maps.Keys(after))...) {
		if !found[name] {
			t.Errorf("startsWithoutBond or after has %s, which is no page with commands", name)
		}
	}
	text := strings.Join(all, "\n")
	for _, r := range append(placeholders, shorter...) {
		if !strings.Contains(text+"\n", strings.ReplaceAll(r.old, "$", "\n")) {
			t.Errorf("no page has %q", r.old)
		}
	}
	for r, n := range count {
		t.Logf("%3d commands: %s", n, cmp.Or(r, "are run"))
	}
}

// TestPages runs the commands of each page.
func TestPages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes devices with their own networks and files. NO COMMAND OF ANY PAGE IS RUN")
	}
	for _, p := range []string{"bash", "curl", "git", "jq", "make", "nginx", "nsenter", "setpriv", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed: NO COMMAND OF ANY PAGE IS RUN", p)
		}
	}
	files := t.TempDir()
	makeCertificate(t, files)
	pages := readPages(t)
	slices.SortStableFunc(pages, func(a, b page) int { // the longest begin first
		return b.countCloneCommands() - a.countCloneCommands()
	})
	for _, p := range pages {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel() // it checks neither rates nor times
			newScene(t, p, files).run()
		})
	}
}
