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

// internalTerms are what no text for people has: paths of the API, types of Go and marks of
// packets. People have commands, names of settings and words.
var internalTerms = regexp.MustCompile(`/v[0-9]+/|\b(GET|POST|PUT|PATCH|DELETE) /|%#?T|%#v|\bmark (0x|%#?x)|` +
	`\b(netip|net|http|url|json|toml|time|strconv|context|config|primary|helper|server|policy|device|pipe|wire|unit|relay|fetch|upload|playlist)\.[A-Z][a-z]`)

// routePattern is the path of a request, alone or with its method: what the API is made of.
var routePattern = regexp.MustCompile(`^((GET|POST|PUT|PATCH|DELETE) )?(/[a-z0-9._{}-]+)+/?$`)

// allowedTexts are texts of another kind.
var allowedTexts = map[string]string{
	"see GET /openapi.json": "the API speaks to the program that calls it",
	"use /v2 and its field names: GET /openapi.json describes them": "the API speaks to the program that calls it",
}

// TestNoInternalsInTexts: errors, hints, help and logs speak of no path of the API, type of
// Go or mark of a packet.
func TestNoInternalsInTexts(t *testing.T) {
	for _, s := range parseSources(t) {
		if s.test || strings.HasPrefix(s.name, "archtest/") || strings.HasPrefix(s.name, "e2e/") { // they speak to programs
			continue
		}
		for _, text := range listTexts(s.syntax) {
			if internalTerms.MatchString(text) && !routePattern.MatchString(text) && allowedTexts[text] == "" {
				t.Errorf("%s: %.200q: %q is no word for people", s.name, text, internalTerms.FindString(text))
			}
		}
	}
}

// listTexts lists the strings of a file, but for its imports and tags of fields.
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

// TestInternalsAreFound: the rule finds each kind, and lets routes and tags be.
func TestInternalsAreFound(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import _ "net/v1/http"
var list = []string{"see GET /v2/streams", "holds a %T", "mark 0x6d70", "mark %#x", "POST /openapi.json makes it", "a net.Conn was closed", "in /v2/policy"}
type x struct { a int `+"`doc:\"GET /v2/pipes\"`"+` }
var fine = []string{"/v2/streams/{bond}/{stream}", "GET /metrics", "see `+"`mpbond status`"+`", "host:port", "example.org/v1", "config.toml"}
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
