// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
)

// requestSchemas are the schemas of request bodies. They reject unknown fields.
var requestSchemas = []string{
	"Chunk",
	"Facts",
	"DeviceChange",
	"StreamChange",
	"PairRequest",
	"SubflowMove",
	"PolicyText",
	"PolicyCheck",
	"PolicyFlow",
}

// describeSchemas makes the comments of package api the descriptions of the schemas. It allows
// further fields in answers, since within /v2 fields may be added.
func describeSchemas(schemas map[string]*huma.Schema) {
	comments := map[string]string{} // of "Type" and "Type.json_name"
	files, _ := api.Source.ReadDir(".")
	for _, f := range files {
		source, _ := api.Source.ReadFile(f.Name())
		readComments(string(source), comments)
	}
	for name, s := range schemas {
		s.Description = comments[name]
		if !slices.Contains(requestSchemas, name) {
			s.AdditionalProperties = true
		}
		for field, p := range s.Properties {
			if c := comments[name+"."+field]; c != "" && p.Ref == "" {
				p.Description = c
			}
		}
	}
	for outer, within := range map[string][]string{
		"BondSubflow": {"Subflow"}, "Stream": {"AppInfo"}, "Flow": {"AppInfo"},
		"BondStream": {"Stream", "AppInfo"}, "BondFlow": {"Flow", "AppInfo"},
		"PolicyRule": {"PolicyClass"}, "KnownFacts": {"Facts"}} { // fields of embedded types
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

var (
	typeLine  = regexp.MustCompile(`^type (\w+) `)
	fieldLine = regexp.MustCompile("`json:\"(\\w+)[^`]*`(?: *// ?(.*))?$")
)

// readComments adds the comments of types and of fields with JSON names, above and behind them. The
// source must be formatted by gofmt.
func readComments(source string, comments map[string]string) {
	typ, above := "", []string(nil)
	for line := range strings.Lines(source) {
		line = strings.TrimRight(line, "\n")
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
			above = append(above, text)
			continue
		}
		if m := typeLine.FindStringSubmatch(line); m != nil {
			typ = m[1]
			comments[typ] = joinCommentLines(above...)
		} else if m := fieldLine.FindStringSubmatch(line); m != nil {
			comments[typ+"."+m[1]] = joinCommentLines(append(above, m[2])...)
		}
		above = nil
	}
}

func joinCommentLines(lines ...string) string {
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}
