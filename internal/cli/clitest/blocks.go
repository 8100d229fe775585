// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// codeLine is a line of a code block.
type codeLine struct {
	number int    // in the document, from 1
	text   string // without indentation
	begins bool   // the first line of its block, or after an empty line
}

// extractCodeLines returns the lines of a document's code blocks that are not empty. A block is
// fenced, or indented by four columns after an empty line.
func extractCodeLines(text string) (list []codeLine) {
	fenced, indented, empty := false, false, true
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, empty = !fenced, true
			continue
		case strings.TrimSpace(line) == "":
			empty = true
			continue
		case !fenced:
			indented = strings.HasPrefix(line, "    ") && (empty || indented)
		}
		if fenced || indented {
			list = append(list, codeLine{number, strings.TrimSpace(line), empty})
		}
		empty = false
	}
	return list
}

// Command is a command line in a code block of a document.
type Command struct {
	Line   int    // in the document, from 1
	Begins bool   // the first command of its block
	Prompt string // the device whose prompt the line has, or ""
	Text   string // without prompt and comment, joined with the lines on which it continues
}

// shellPrograms are the programs with which a block of commands without prompts may begin.
var shellPrograms = []string{"mpbond", "mpbond-lab", "cellwatch", "make", "go", "curl", "jq", "cp", "scp", "ssh",
	"mkfifo", "mpv", "podman", "docker", "taskset", "git"}

var (
	shellPrompt  = regexp.MustCompile(`^([a-z]*)\$ +`)
	shellComment = regexp.MustCompile(`(^| )# .*$`)
	assignment   = regexp.MustCompile(`^[A-Za-z_]+=`)
)

// Commands returns the command lines in a document's code blocks. A block of commands begins with a
// prompt or one of shellPrograms. If it begins with a prompt, lines without one are output. A
// command continues on the next line after a backslash or inside quotes. Usage lines with "[flags]"
// are no commands.
func Commands(text string) (list []Command) {
	commands, prompts, continued := false, false, false
	for _, l := range extractCodeLines(text) {
		prompt := shellPrompt.FindStringSubmatch(l.text)
		if l.begins {
			prompts = prompt != nil
			commands = (prompts || beginsWithProgram(l.text)) && !strings.Contains(l.text, "[flags]")
		}
		if !commands || prompts && prompt == nil && !continued {
			continue
		}
		c := Command{Line: l.number, Begins: l.begins, Text: l.text}
		if prompt != nil {
			c.Prompt, c.Text = prompt[1], l.text[len(prompt[0]):]
		}
		c.Text = strings.TrimSpace(shellComment.ReplaceAllString(c.Text, ""))
		if !continued {
			list = append(list, Command{c.Line, c.Begins, c.Prompt, ""})
		}
		whole := &list[len(list)-1]
		c.Text, continued = strings.CutSuffix(c.Text, "\\")
		whole.Text += c.Text
		if !continued && hasOpenQuote(whole.Text) {
			whole.Text, continued = whole.Text+" ", true
		}
	}
	return list
}

// hasOpenQuote reports whether a quote of a command line is not closed.
func hasOpenQuote(line string) bool {
	quote := rune(0)
	for _, c := range line {
		switch {
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		}
	}
	return quote != 0
}

// beginsWithProgram reports whether a line begins with sudo, one of shellPrograms or the path of a
// program, maybe after variables.
func beginsWithProgram(line string) bool {
	for _, w := range strings.Fields(line) {
		if !assignment.MatchString(w) {
			return w == "sudo" || slices.Contains(shellPrograms, w) || strings.HasPrefix(w, "./") || path.Dir(w) == "bin"
		}
	}
	return false
}
