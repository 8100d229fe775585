// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxFigureAge is by how many commits of the core figures may be older than the program. Older ones
// say so.
const maxFigureAge = 50

// corePaths are the directories that decide figures, by their present and former names.
var corePaths = []string{"core", "link/estimate", "bond", "sched", "estimate"}

var versionPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]*$`)

// CoreCommits returns how many commits have changed the core since a version, in the repository of
// the working directory. ok is false if there is no repository that has this version.
func CoreCommits(ctx context.Context, version string) (n int, ok bool) {
	version = strings.TrimSuffix(version, "-dirty")
	if !versionPattern.MatchString(version) {
		return 0, false
	}
	args := []string{"rev-list", "--count", version + "..HEAD", "--"}
	for _, p := range corePaths {
		args = append(args, ":/"+p) // from the root of the repository
	}
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(out)))
	return n, err == nil
}

// figureAgeRemark returns a remark on figures that are old, else "".
func figureAgeRemark(commits int) string {
	if commits <= maxFigureAge {
		return ""
	}
	return fmt.Sprintf(" (OLD: %d commits have changed the core since)", commits)
}

// AddAges adds to evaluations by how many commits of the core they are older than the program, as
// far as count knows it.
func AddAges(all []Evaluation, count func(version string) (n int, ok bool)) {
	for i := range all {
		all[i].CoreCommits, _ = count(all[i].Version)
	}
}

// ageMark ends the line of a page that says that its figures are old.
const ageMark = "<!-- age -->"

// provenancePattern finds the commits of figures in a page, see Evaluation.Provenance.
var provenancePattern = regexp.MustCompile(`(?m)^mpbond ([0-9a-f]{7,40})[ ,]`)

// MarkAge returns a page with a line that says whether figures in it are old: before its first
// tables, or before the first commit that it names. Pages without figures, and those whose commits
// count does not know, stay as they are.
func MarkAge(page string, count func(version string) (n int, ok bool)) string {
	oldest, age := "", -1
	for _, m := range provenancePattern.FindAllStringSubmatch(page, -1) {
		if n, ok := count(m[1]); ok && n > age {
			oldest, age = m[1], n
		}
	}
	if age < 0 {
		return page
	}
	lines := slices.DeleteFunc(strings.SplitAfter(page, "\n"), func(line string) bool {
		return strings.HasSuffix(line, ageMark+"\n")
	})
	if age > maxFigureAge {
		at := slices.Index(lines, DocumentBegin+"\n")
		if at < 0 {
			at = slices.IndexFunc(lines, provenancePattern.MatchString)
		}
		lines = slices.Insert(lines, at, fmt.Sprintf("**These figures are from an older version (%s)** and may be "+
			"wrong now. %s\n", oldest, ageMark))
	}
	return strings.Join(lines, "")
}
