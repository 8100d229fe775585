// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Limits for a dump of all goroutines.
const (
	maxStacks = 24
	maxFrames = 20 // of each, the innermost
)

var (
	stackHeader     = regexp.MustCompile(`^goroutine \d+ .*\[.*\]:$`)
	argumentPattern = regexp.MustCompile(`\(0x[0-9a-f].*\)$|\(\{.*\)$| \+0x[0-9a-f]+.*$| in goroutine \d+$`)
)

// shortenDump shortens dumps of goroutines, which a panic or the time limit prints, to stacks with
// our code, those of tests first, equal ones once. All other lines stay unchanged.
func shortenDump(output string) string {
	if !strings.Contains(output, "\ngoroutine ") {
		return output
	}
	var text, tests, others []string
	seen, hidden := map[string]int{}, 0
	lines := strings.SplitAfter(output, "\n")
	for len(lines) > 0 {
		if !stackHeader.MatchString(strings.TrimSuffix(lines[0], "\n")) {
			text, lines = append(text, lines[0]), lines[1:]
			continue
		}
		end := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" })
		if end < 0 {
			end = len(lines)
		}
		stack := lines[:end]
		lines = lines[min(end+1, len(lines)):]
		key, ours, ofTest := summarizeStack(stack)
		switch seen[key]++; {
		case !ours:
			hidden++
		case seen[key] > 1:
		case ofTest:
			tests = append(tests, key)
		default:
			others = append(others, key)
		}
	}
	var b strings.Builder
	b.WriteString(strings.Join(text, ""))
	shown := append(tests, others...)
	for _, key := range shown[min(maxStacks, len(shown)):] {
		hidden += seen[key]
	}
	for _, key := range shown[:min(maxStacks, len(shown))] {
		fmt.Fprintf(&b, "\n%d × goroutine %s", seen[key], key)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "\n%d more goroutines are not shown\n", hidden)
	}
	return b.String()
}

// summarizeStack returns a stack without what differs between goroutines, and reports whether it
// contains our code and a test.
func summarizeStack(stack []string) (key string, ours, ofTest bool) {
	var b strings.Builder
	_, state, _ := strings.Cut(strings.TrimSpace(stack[0]), "[")
	state, _, _ = strings.Cut(state, ", ") // how long, and which bubble
	fmt.Fprintf(&b, "[%s]:\n", strings.TrimSuffix(state, "]:"))
	for i, line := range stack[1:] {
		ours = ours || strings.HasPrefix(line, "mpbond/")
		ofTest = ofTest || strings.HasPrefix(line, "mpbond/") && strings.Contains(line, ".Test") &&
			!strings.Contains(line, ".TestMain(")
		if i < 2*maxFrames || strings.HasPrefix(line, "mpbond/") || strings.HasPrefix(line, "created by ") {
			b.WriteString(argumentPattern.ReplaceAllString(strings.TrimSuffix(line, "\n"), "") + "\n")
		}
	}
	return b.String(), ours, ofTest
}
