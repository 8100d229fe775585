package house

import (
	"go/ast"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestConfigIsDocumented: each key of the roles' configuration, and of the
// policy file, is in the documents that list them.
func TestConfigIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, rules...)
	keys := 0
	for _, s := range sources(t) {
		if s.test || !in(s.dir, roles) && s.dir != "policy" {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			f, ok := n.(*ast.Field)
			if !ok || f.Tag == nil {
				return true
			}
			tag, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			key := reflect.StructTag(tag).Get("toml")
			if key == "" || key == "-" {
				return true
			}
			keys++
			if !strings.Contains(string(text), "`"+key+"`") {
				t.Errorf("%s: docs/config.md and docs/policy.md do not tell of the key `%s`", s.name, key)
			}
			return true
		})
	}
	if keys < 20 {
		t.Errorf("found %d keys: this test looks in the wrong place", keys)
	}
}
