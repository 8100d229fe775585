package main

import (
	"bytes"
	"cmp"
	"encoding"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/internal/cli/clitest"
	"mpbond/node/helper"
	"mpbond/node/primary"
	"mpbond/node/server"
)

// TestReference: docs/reference/mpbond.md is what the types and commands say.
func TestReference(t *testing.T) {
	t.Setenv("MPBOND_HOME", "/nowhere") // whatever is there must not show
	clitest.CheckReference(t, "../../docs/reference/mpbond.md", buildReference(t))
}

// settingsFile is a struct that a file of configuration fills.
type settingsFile struct {
	heading, text string
	of            any // with its defaults
	source        string
	command       string // whose flags go before it
}

func buildReference(t *testing.T) []byte {
	var b bytes.Buffer
	b.WriteString(`# Reference

Made by ` + "`make reference`" + ` from types and commands: change these. How files are found: [config.md](config.md).
Commands of the other programs: [mpbond-lab](reference-lab.md), [cellwatch](reference-cellwatch.md).
A setting without a default is empty, none or off.

`)
	root, _ := thisProgram().Root(io.Discard)
	for _, s := range []settingsFile{
		{"server.toml", "", server.Default, "../../node/server", "server"},
		{"primary.toml", "", primary.Default, "../../node/primary", "primary"},
		{"primary.toml and helper.toml: [cell.INTERFACE]", "What it does: [pbe.md](pbe.md).", mydevice.Cell{}, "../../control/device", ""},
		{"helper.toml", "", helper.Config{}, "../../node/helper", "helper"},
		{"helper.toml: [onload]", "What it does: [onload.md](onload.md).", onloadConfig{}, ".", ""},
		{"helper.toml: [onload.page]", "What it does: [onload.md](onload.md#the-helpers-page).", pageConfig{}, ".", ""},
		{"policy.toml", "What it means: [policy.md](policy.md).", policy.File{}, "../../control/policy", ""},
		{"policy.toml: [[rule]]", "", policy.RuleSpec{}, "../../control/policy", ""},
		{"policy.toml: [device.NAME]", "", policy.Limits{}, "../../control/policy", ""},
		{"policy.toml: [device.NAME], caps", "", policy.Caps{}, "../../control/policy", ""},
		{"trust.toml: [[peer]]", "Commands write it: `pair`, `rename`, `pause`, `revoke`, `trust`.", identity.Peer{}, "../../base/identity", ""},
	} {
		fmt.Fprintf(&b, "## %s\n\n", s.heading)
		if s.text != "" {
			fmt.Fprintf(&b, "%s\n\n", s.text)
		}
		writeSettings(t, &b, s, root)
	}
	b.WriteString("`dual.toml` has `primary.toml` and `helper.toml` as tables `[primary]` and `[helper]`.\n\n")
	clitest.DescribeCommands(&b, thisProgram())
	return b.Bytes()
}

// writeSettings writes a row for each group of settings that share a comment.
func writeSettings(t *testing.T, b *bytes.Buffer, s settingsFile, root *cobra.Command) {
	v := reflect.ValueOf(s.of)
	if v.NumField() == 0 {
		b.WriteString("Nothing yet.\n\n")
		return
	}
	doc := fieldComments(t, s.source, v.Type().Name())
	var flags *pflag.FlagSet
	if s.command != "" {
		c, _, err := root.Find([]string{s.command})
		if err != nil {
			t.Fatal(err)
		}
		flags = c.Flags()
	}
	names := map[string]string{} // keys by names in Go
	for f := range fieldsOf(v.Type()) {
		names[f.Name] = settingKey(f)
	}
	b.WriteString("| key | type | default | flag | meaning |\n|---|---|---|---|---|\n")
	for f := range fieldsOf(v.Type()) {
		if settingKey(f) == "-" {
			continue
		}
		meaning := strings.TrimPrefix(strings.TrimPrefix(doc[f.Name], f.Name+" is "), f.Name+" are ")
		if meaning == "" {
			t.Errorf("%s.%s of %s has no comment", v.Type(), f.Name, s.heading)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", settingKey(f), typeName(f.Type), formatDefault(v.FieldByIndex(f.Index)), findFlag(flags, settingKey(f)), clitest.TableCell(useKeyNames(meaning, names)))
	}
	b.WriteString("\n")
}

// fieldsOf yields the settings of a struct.
func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("toml") != "" && !yield(f) {
				return
			}
		}
	}
}

func settingKey(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	return key
}

// fieldComments are those of a struct's fields, by name. A field without one shares
// that of the field on the line before it.
func fieldComments(t *testing.T, dir, name string) map[string]string {
	list := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			before, line := "", 0
			for _, f := range s.Fields.List {
				text := cmp.Or(f.Doc.Text(), f.Comment.Text())
				if text == "" && fset.Position(f.Pos()).Line == line+1 {
					text = before
				}
				before, line = text, fset.Position(f.End()).Line
				for _, n := range f.Names {
					list[n.Name] = strings.Join(strings.Fields(text), " ")
				}
			}
			return false
		})
	}
	return list
}

// useKeyNames has a comment speak of keys instead of Go's names, and of documents by
// links.
func useKeyNames(s string, names map[string]string) string {
	s = regexp.MustCompile(`\b[A-Z]\w+\b`).ReplaceAllStringFunc(s, func(w string) string {
		if key := names[w]; key != "" {
			return "`" + key + "`"
		}
		return w
	})
	return regexp.MustCompile(`\bdocs/([\w/-]+\.md)`).ReplaceAllString(s, "[$1]($1)")
}

func typeName(t reflect.Type) string {
	switch t.Name() {
	case "Rate", "Bytes", "Duration":
		return map[string]string{"Rate": `rate, ` + "`\"50Mbit/s\"`", "Bytes": "size, `\"4MB\"`", "Duration": "time, `\"10s\"`"}[t.Name()]
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		if t.Elem() == reflect.TypeFor[policy.RuleSpec]() {
			return "tables"
		}
		return "list of " + map[bool]string{true: "texts", false: typeName(t.Elem()) + "s"}[isText(t.Elem())]
	case reflect.Map:
		return "tables"
	}
	if isText(t) {
		return "text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Struct:
		return "table"
	}
	return "whole number"
}

// isText tells whether a setting is written as text.
func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// formatDefault is a default as it would be written, "" for none.
func formatDefault(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	if v.Kind() == reflect.Slice {
		var list []string
		for i := range v.Len() {
			list = append(list, strings.Trim(formatDefault(v.Index(i)), "`"))
		}
		return "`[" + strings.Join(list, ", ") + "]`"
	}
	text := fmt.Sprint(v.Interface())
	if d, ok := v.Interface().(primary.Duration); ok {
		text = time.Duration(d).String()
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, _ := m.MarshalText()
		text = string(b)
	}
	if isText(v.Type()) {
		text = strconv.Quote(text)
	}
	return "`" + text + "`"
}

// findFlag is the flag that goes before a setting: of its name, or one of its list.
func findFlag(flags *pflag.FlagSet, key string) string {
	if flags == nil {
		return ""
	}
	name := strings.ReplaceAll(key, "_", "-")
	for _, n := range []string{name, strings.TrimSuffix(name, "s")} {
		if flags.Lookup(n) != nil {
			return "`--" + n + "`"
		}
	}
	return ""
}
