package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of what is shown of a dump of all goroutines.
const (
	mostStacks = 24
	mostFrames = 20 // of each, the innermost
)

var (
	stackHead = regexp.MustCompile(`^goroutine \d+ .*\[.*\]:$`)
	arguments = regexp.MustCompile(`\(0x[0-9a-f].*\)$|\(\{.*\)$| \+0x[0-9a-f]+.*$| in goroutine \d+$`)
)

// shorten cuts dumps of goroutines, as a panic and the time limit leave them, down
// to what tells where a test stood: stacks with our code in them, those of tests
// first, the same ones once. All other lines stay as they are.
func shorten(output string) string {
	if !strings.Contains(output, "\ngoroutine ") {
		return output
	}
	var text, tests, others []string
	seen, hidden := map[string]int{}, 0
	lines := strings.SplitAfter(output, "\n")
	for len(lines) > 0 {
		if !stackHead.MatchString(strings.TrimSuffix(lines[0], "\n")) {
			text, lines = append(text, lines[0]), lines[1:]
			continue
		}
		end := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" })
		if end < 0 {
			end = len(lines)
		}
		stack := lines[:end]
		lines = lines[min(end+1, len(lines)):]
		key, ours, ofTest := frames(stack)
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
	for _, key := range shown[min(mostStacks, len(shown)):] {
		hidden += seen[key]
	}
	for _, key := range shown[:min(mostStacks, len(shown))] {
		fmt.Fprintf(&b, "\n%d × goroutine %s", seen[key], key)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "\n%d more goroutines are not shown\n", hidden)
	}
	return b.String()
}

// frames is a stack without what differs from one goroutine to the next, and
// whether our code is in it, and a test.
func frames(stack []string) (key string, ours, ofTest bool) {
	var b strings.Builder
	_, state, _ := strings.Cut(strings.TrimSpace(stack[0]), "[")
	state, _, _ = strings.Cut(state, ", ") // how long, and which bubble
	fmt.Fprintf(&b, "[%s]:\n", strings.TrimSuffix(state, "]:"))
	for i, line := range stack[1:] {
		ours = ours || strings.HasPrefix(line, "mpbond/")
		ofTest = ofTest || strings.HasPrefix(line, "mpbond/") && strings.Contains(line, ".Test") && !strings.Contains(line, ".TestMain(")
		if i < 2*mostFrames || strings.HasPrefix(line, "mpbond/") || strings.HasPrefix(line, "created by ") {
			b.WriteString(arguments.ReplaceAllString(strings.TrimSuffix(line, "\n"), "") + "\n")
		}
	}
	return b.String(), ours, ofTest
}
