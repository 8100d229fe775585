// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// fileCalls are functions that use files with the rights of the process.
var fileCalls = map[string]map[string]bool{
	"os": setOf("Open", "OpenFile", "OpenRoot", "OpenInRoot", "Create", "CreateTemp", "MkdirTemp", "ReadFile",
		"WriteFile", "ReadDir", "DirFS", "CopyFS",
		"Stat", "Lstat", "Readlink", "Mkdir", "MkdirAll", "Remove", "RemoveAll", "Rename", "Link", "Symlink",
		"Truncate", "Chmod", "Chown", "Lchown", "Chtimes"),
	"path/filepath": setOf("EvalSymlinks"),
	"syscall":       setOf("Open", "Mkfifo", "Unlink", "Rename", "Chmod", "Chown"),
}

const filesReason = "a process of root must use files in a user's directory with the rights of that user: " +
	"use package userfile (docs/adr/0012)"

// exemptFiles lists sources that use only files that no user can replace, or are not part of the
// product.
var exemptFiles = map[string]string{
	"base/userfile/":                  "it implements the rule",
	"lab/":                            "the laboratory's own directories",
	"e2e/":                            "tests",
	"link/splice/splicetest/":         "/proc, for tests",
	"archtest/":                       "tests",
	"cmd/mpbond-lab/":                 "the laboratory's own directories",
	"internal/cli/clitest/":           "tests",
	"cmd/cellwatch/":                  "a tool that writes where its command line says",
	"pbe/air/":                        "a tool that reads what its command line says",
	"link/tcp/probe_linux.go":         "/proc",
	"node/doctor/host":                "/proc and /dev",
	"node/intercept/":                 "/proc, /sys and cgroups",
	"onload/dataplan/plan.go":         "/proc",
	"control/device/counters.go":      "/proc",
	"control/facts/sysfs.go":          "/sys",
	"control/device/process_linux.go": "/proc",
	"control/device/radio.go":         "/sys",
	"api/serve/process.go":            "/proc",
	"node/probe/":                     "/proc and /etc/resolv.conf",
	"cmd/mpbond/memory.go":            "cgroups",
	"cmd/mpbond/run.go":               "/dev/tty",
	"base/natstest/":                  "temporary directories of tests",
}

// TestFilesWithTheRightsOfTheirUser checks that sources use files through package userfile.
func TestFilesWithTheRightsOfTheirUser(t *testing.T) {
	used := map[string]bool{}
	for _, s := range parseSources(t) {
		if s.test {
			continue
		}
		bad := listCalls(s, fileCalls)
		if len(bad) == 0 {
			continue
		}
		exempt := false
		for of := range exemptFiles {
			if strings.HasPrefix(s.name, of) {
				exempt, used[of] = true, true
			}
		}
		if !exempt {
			t.Errorf("%s uses %v: %s", s.name, bad, filesReason)
		}
	}
	for of := range exemptFiles {
		if !used[of] && of != "archtest/" {
			t.Errorf("%s needs no exemption", of)
		}
	}
}

// listCalls lists the functions of a list, by package path, that a file uses.
func listCalls(s *source, functions map[string]map[string]bool) (list []string) {
	names := map[string]map[string]bool{}
	for p, of := range functions {
		if name, ok := s.imports[p]; ok {
			names[name] = of
		}
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && names[x.Name][sel.Sel.Name] {
				list = append(list, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	slices.Sort(list)
	return slices.Compact(list)
}
