// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// internalTerms match what texts for people must not contain: paths of the API, types of Go and
// marks of packets. People know commands, settings and plain words.
var internalTerms = regexp.MustCompile(`/v[0-9]+/|\b(GET|POST|PUT|PATCH|DELETE) /|%#?T|%#v|\bmark (0x|%#?x)|` +
	`\b(netip|net|http|url|json|toml|time|strconv|context|config|primary|helper|server|policy|device|pipe|` +
	`wire|unit|relay|fetch|upload|playlist)\.[A-Z][a-z]`)

// routePattern matches the path of a request, alone or with its method.
var routePattern = regexp.MustCompile(`^((GET|POST|PUT|PATCH|DELETE) )?(/[a-z0-9._{}-]+)+/?$`)

// allowedTexts are texts for programs, with the reason.
var allowedTexts = map[string]string{
	"see GET /openapi.json": "the API speaks to the program that calls it",
	"use /v2 and its field names: GET /openapi.json describes them": "the API speaks to the program that calls it",
}

// TestNoInternalsInTexts checks that errors, hints, help texts and logs contain no path of the API,
// type of Go or mark of a packet.
func TestNoInternalsInTexts(t *testing.T) {
	for _, s := range parseSources(t) {
		// their texts are for programs
		if s.test || strings.HasPrefix(s.name, "archtest/") || strings.HasPrefix(s.name, "e2e/") {
			continue
		}
		for _, text := range listTexts(s.syntax) {
			if internalTerms.MatchString(text) && !routePattern.MatchString(text) && allowedTexts[text] == "" {
				t.Errorf("%s: %.200q: %q is not for people", s.name, text, internalTerms.FindString(text))
			}
		}
	}
}

// listTexts lists the strings of a file, except imports and tags of fields.
func listTexts(f *ast.File) (list []string) {
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && !tags[n] {
				list = append(list, text)
			}
		}
		return true
	})
	return list
}

// TestInternalsAreFound checks that the rule finds each kind, but not routes and tags.
func TestInternalsAreFound(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import _ "net/v1/http"
var list = []string{"see GET /v2/streams", "holds a %T", "mark 0x6d70", "mark %#x", "POST /openapi.json makes it",
	"a net.Conn was closed", "in /v2/policy"}
type x struct { a int `+"`doc:\"GET /v2/pipes\"`"+` }
var fine = []string{"/v2/streams/{bond}/{stream}", "GET /metrics", "see `+"`mpbond status`"+`", "host:port",
	"example.org/v1", "config.toml"}
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range listTexts(f) {
		if found := internalTerms.MatchString(text) && !routePattern.MatchString(text); found != (i < 7) {
			t.Errorf("%q: found %v", text, found)
		}
	}
}
