// SPDX-License-Identifier: Apache-2.0

// Package config reads TOML files strictly, so that a misspelt setting is an error and not a silent
// default. Roles and tools pass it the struct to fill and know nothing of TOML.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// maxFile bounds the size of a file.
const maxFile = 4 << 20

const tomlHint = `a setting is written like listen = ":7600" or max_streams = 100, with quotes around text`

// Load reads the TOML file at path into the struct that into points to. Settings that are not in
// the file keep their value, so set defaults before. A key without a field is an error that names
// the file, the line, the key and the nearest valid name. Errors are faults.
func Load(path string, into any) error {
	data, err := ReadFile(path)
	if err != nil {
		return err
	}
	return Parse(path, data, into)
}

// ReadFile returns the content of a configuration file, of bounded size. Errors are faults.
func ReadFile(path string) ([]byte, error) {
	f, err := userfile.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.New(fault.NotFound, err, "check the path of the configuration file")
	case err != nil:
		return nil, fault.New(fault.Config, err, "")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(data) > maxFile {
		return nil, fault.New(fault.Limit, fmt.Errorf("%s: the configuration file has more than %d bytes", path,
			maxFile), "")
	}
	return data, fault.New(fault.Config, err, "")
}

// Parse is Load for data in memory; name stands for the file in errors.
func Parse(name string, data []byte, into any) error {
	if err := checkNumbers(name, data, into); err != nil {
		return err
	}
	d := toml.NewDecoder(strings.NewReader(string(data)))
	err := d.DisallowUnknownFields().Decode(into)
	var unknown *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		return unknownKeyError(name, &unknown.Errors[0], into)
	case errors.As(err, &bad):
		text := explainTypeError(strings.TrimPrefix(bad.Error(), "toml: "))
		if k := bad.Key(); len(k) > 0 {
			text = strings.Join(k, ".") + ": " + text
		}
		line, column := bad.Position()
		return fault.New(fault.Config, &Error{File: name, Line: line, Column: column, Err: errors.New(text)}, tomlHint)
	}
	return fault.New(fault.Config, fmt.Errorf("%s: %w", name, err), "")
}

// typeMismatch matches the decoder's error for a value of the wrong type.
var typeMismatch = regexp.MustCompile(`^cannot decode TOML (\w+) into .* of type (\S+)$`)

// invalidPrefix matches the error of package netip for an invalid prefix.
var invalidPrefix = regexp.MustCompile(`^netip\.ParsePrefix\((".*?")\): `)

// explainTypeError rewrites type errors in plain words.
func explainTypeError(text string) string {
	if m := invalidPrefix.FindStringSubmatch(text); m != nil {
		return m[1] + ` is not an address prefix such as "192.168.7.0/24" or "fd00::/8"`
	}
	m := typeMismatch.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	words := map[string]string{"string": "a text", "bool": "true or false",
		"[]string": "a list of texts, like [\"a\", \"b\"]", "array": "a list", "integer": "a number",
		"boolean": "true or false"}
	want := words[m[2]]
	switch {
	case want != "":
	case strings.HasPrefix(m[2], "int"), strings.HasPrefix(m[2], "uint"), strings.HasPrefix(m[2], "float"):
		want = "a number"
	default:
		want = "something else"
	}
	return fmt.Sprintf("the value is %s but must be %s", cmp.Or(words[m[1]], "a "+m[1]), want)
}

// Error is an error at a position in a file.
type Error struct {
	File         string
	Line, Column int    // from 1, the column in bytes; 0 if not at one line
	Near         string // the probably intended name, or ""
	Err          error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the error without its position.
func (e *Error) Unwrap() error { return e.Err }

// Place returns the position and the probably intended name.
func (e *Error) Place() (line, column int, near string) { return e.Line, e.Column, e.Near }

// unknownKeyError returns the error for a key without a field, with the nearest valid name.
func unknownKeyError(name string, e *toml.DecodeError, into any) error {
	line, column := e.Position()
	key := e.Key()
	err := &Error{File: name, Line: line, Column: column, Err: fmt.Errorf("unknown setting %q", strings.Join(key, "."))}
	names, at := validNames(reflect.TypeOf(into), key)
	if at >= len(key) {
		return fault.New(fault.Config, err, "")
	}
	if err.Near = Nearest(key[at], names); err.Near != "" {
		return fault.New(fault.Config, err, fmt.Sprintf("did you mean %q?", err.Near))
	}
	hint := ""
	if len(names) > 0 {
		hint = "valid settings: " + strings.Join(names, ", ")
	}
	return fault.New(fault.Config, err, hint)
}

// validNames walks t along key. It returns the names that are valid at the first unknown part of
// key, and the index of that part.
func validNames(t reflect.Type, key []string) (names []string, at int) {
	for at = 0; at < len(key); at++ {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
			t = t.Elem()
		}
		if t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		if t.Kind() != reflect.Struct {
			return nil, at
		}
		fields := map[string]reflect.Type{}
		names = fieldNames(t, fields)
		next, ok := fields[strings.ToLower(key[at])]
		if !ok {
			return names, at
		}
		t = next
	}
	return nil, at
}

// fieldNames returns the TOML names of the fields of struct t, including those of embedded structs.
// It adds their types to types, keyed in lower case as the decoder compares them.
func fieldNames(t reflect.Type, types map[string]reflect.Type) (names []string) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			names = append(names, fieldNames(f.Type, types)...)
			continue
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if tag == "" {
			tag = strings.ToLower(f.Name)
		}
		names = append(names, tag)
		types[strings.ToLower(tag)] = f.Type
	}
	return names
}

// Nearest returns the name that word probably means, or "" if none is similar. It ignores case.
func Nearest(word string, names []string) string {
	best, limit := "", 1+max(2, len(word)/3)
	for _, n := range names {
		if d := editDistance(strings.ToLower(word), strings.ToLower(n)); d < limit && d < len(n) {
			best, limit = n, d
		}
	}
	return best
}

// editDistance returns the number of insertions, deletions and replacements of bytes that turn a
// into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
