package serve

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
)

// taken are the schemas of bodies of requests: what is in none of their fields
// is refused.
var taken = []string{"Chunk", "Facts", "DeviceChange", "StreamChange", "PairRequest", "Move", "PolicyText", "PolicyCheck", "PolicyFlow"}

// addComments makes the comments of package api the descriptions of the schemas,
// and lets answers have more fields than a schema names: within /v1 they may be
// added.
func addComments(schemas map[string]*huma.Schema) {
	comments := map[string]string{} // of "Type" and "Type.json_name"
	files, _ := api.Source.ReadDir(".")
	for _, f := range files {
		text, _ := api.Source.ReadFile(f.Name())
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), text, parser.ParseComments)
		if err != nil {
			continue // it has been compiled: this cannot be
		}
		ast.Inspect(file, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				return true
			}
			t := d.Specs[0].(*ast.TypeSpec)
			comments[t.Name.Name] = oneLine(d.Doc)
			s, ok := t.Type.(*ast.StructType)
			if !ok {
				return false
			}
			for _, field := range s.Fields.List {
				if field.Tag != nil {
					name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
					comments[t.Name.Name+"."+name] = strings.TrimSpace(oneLine(field.Doc) + " " + oneLine(field.Comment))
				}
			}
			return false
		})
	}
	for name, s := range schemas {
		s.Description = comments[name]
		if !slices.Contains(taken, name) {
			s.AdditionalProperties = true
		}
		for field, p := range s.Properties {
			if c := comments[name+"."+field]; c != "" && p.Ref == "" {
				p.Description = c
			}
		}
	}
	for outer, within := range map[string][]string{"Subflow": {"Path"}, "Stream": {"Owner"}, "Flow": {"Owner"}, "StreamOf": {"Stream", "Owner"}, "FlowOf": {"Flow", "Owner"},
		"PolicyRule": {"PolicyTreatment"}, "KnownFacts": {"Facts"}} { // fields of types within it
		s := schemas[outer]
		if s == nil {
			continue
		}
		for field, p := range s.Properties {
			for _, inner := range within {
				if p.Description == "" && p.Ref == "" {
					p.Description = comments[inner+"."+field]
				}
			}
		}
	}
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
