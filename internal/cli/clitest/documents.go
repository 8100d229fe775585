// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mpbond/internal/cli"
)

// CheckDocuments parses every command line of p in the tree's documents, as p would, and runs
// none. A command in a code block needs arguments that p accepts; one in running text only names
// of commands and flags.
func CheckDocuments(t *testing.T, p cli.Program) {
	t.Helper()
	out, err := exec.Command("git", "-C", "../..", "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("needs git to list the documents: %v", err)
	}
	found := 0
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "docs/adr/") || name == "CHANGELOG.md" {
			continue // what they quote may be gone
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, c := range documentedCommands(string(text), p.Name) {
			found++
			if err := checkCommandLine(p, c); err != nil {
				t.Errorf("%s: %s %s: %v", name, p.Name, strings.Join(c.args, " "), err)
			}
		}
	}
	t.Logf("%d commands", found)
	if found < 5 {
		t.Errorf("%d commands of %s found: the search is broken", found, p.Name)
	}
}

// documentedCommand is a command line of a document, without the program's name.
type documentedCommand struct {
	args  []string
	whole bool // with all arguments: it is in a code block
}

var (
	inlineCode  = regexp.MustCompile("`([^`\n]+)`")
	separators  = regexp.MustCompile(`&&|\|\||[|;]`)
	continued   = regexp.MustCompile(`\\\n +`)
	placeholder = regexp.MustCompile(`[…\[\]<>*]|\.\.\.|^(X|COMMAND)$`)
)

// documentedCommands returns the commands of a program in a document.
func documentedCommands(text, program string) (list []documentedCommand) {
	add := func(line string, whole bool) {
		line = shellComment.ReplaceAllString(shellPrompt.ReplaceAllString(strings.TrimSpace(line), ""), "")
		for part := range slices.Values(separators.Split(line, -1)) {
			if args, ok := programArgs(splitWords(part), program); ok {
				list = append(list, documentedCommand{args, whole && !slices.ContainsFunc(args, placeholder.MatchString)})
			}
		}
	}
	text = continued.ReplaceAllString(text, "")
	code := map[int]string{}
	for _, l := range extractCodeLines(text) {
		code[l.number] = l.text
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if code[number] != "" {
			add(code[number], true)
			continue
		}
		for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
			add(m[1], false)
		}
	}
	return list
}

// programArgs returns the arguments of a program in the words of a command line, which may
// begin with sudo, variables or a directory.
func programArgs(words []string, program string) ([]string, bool) {
	for i, w := range words {
		switch {
		case filepath.Base(w) == program && (w == program || strings.Contains(w, "bin/") || strings.HasPrefix(w, "./")):
			return words[i+1:], true
		case w == "sudo" || w == "nohup" || assignment.MatchString(w):
		default:
			return nil, false
		}
	}
	return nil, false
}

// splitWords splits a command line like a shell, as far as documents need it. A redirection ends
// the words.
func splitWords(line string) (words []string) {
	var word strings.Builder
	begun, quote := false, byte(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := range len(line) {
		switch c := line[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ':
			end()
		case c == '>' && !begun:
			return words
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	end()
	return words
}

// checkCommandLine returns an error if p does not know the command or a flag, or refuses the number
// of arguments.
func checkCommandLine(p cli.Program, c documentedCommand) error {
	args := c.args
	if !c.whole {
		args = slices.DeleteFunc(slices.Clone(args), placeholder.MatchString)
	}
	root, _ := p.Root(io.Discard)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if !c.whole {
		for _, a := range rest {
			name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
			if strings.HasPrefix(a, "--") && name != "" && cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
				return fmt.Errorf("unknown flag %s", a)
			}
			if a == "--" {
				break
			}
		}
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.Flags().Changed("help") {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
