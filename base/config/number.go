// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"mpbond/base/fault"
)

// checkNumbers rejects a bare number where a setting needs a unit or a word: the decoder would read
// 60 as 60 ns. It accepts numbers that the setting accepts as text, such as 0 for no limit. into
// points to the struct for data. The decoder reports all other errors.
func checkNumbers(name string, data []byte, into any) error {
	var p unstable.Parser
	p.Reset(data)
	c := numberChecker{name: name, p: &p}
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = tomlKeyParts(e)
		case unstable.KeyValue:
			if err := c.checkValue(reflect.TypeOf(into), append(table[:len(table):len(table)], tomlKeyParts(e)...),
				e.Value()); err != nil {
				return err
			}
		}
	}
	return nil
}

// numberChecker checks the numbers of one file.
type numberChecker struct {
	name string
	p    *unstable.Parser
}

// checkValue checks the value of key in into.
func (c numberChecker) checkValue(into reflect.Type, key []string, v *unstable.Node) error {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if err := c.checkValue(into, append(key[:len(key):len(key)], tomlKeyParts(it.Node())...),
				it.Node().Value()); err != nil {
				return err
			}
		}
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			if err := c.checkValue(into, key, it.Node()); err != nil {
				return err
			}
		}
	case unstable.Integer, unstable.Float:
		t := lookupValueType(into, key)
		if t == nil {
			return nil
		}
		text, isText := reflect.New(t).Interface().(encoding.TextUnmarshaler)
		if !isText {
			return nil
		}
		data := v.Data
		if n, err := strconv.ParseInt(strings.ReplaceAll(string(data), "_", ""), 0, 64); v.Kind == unstable.Integer &&
			err == nil {
			data = strconv.AppendInt(nil, n, 10) // also 4_194_304 and 0x400000
		}
		if err := text.UnmarshalText(data); err != nil {
			at := c.p.Shape(v.Raw).Start
			return fault.New(fault.Config, &Error{File: c.name, Line: at.Line, Column: at.Column,
				Err: fmt.Errorf("%s: %s", strings.Join(key, "."), explainTypeError(err.Error()))}, tomlHint)
		}
	}
	return nil
}

// tomlKeyParts returns the parts of an expression's key.
func tomlKeyParts(n *unstable.Node) (key []string) {
	for it := n.Key(); it.Next(); {
		key = append(key, string(it.Node().Data))
	}
	return key
}

// lookupValueType returns the type of key's value in t, without pointers, slices and arrays; nil if
// there is none.
func lookupValueType(t reflect.Type, key []string) reflect.Type {
	t = elementType(t)
	for _, part := range key {
		switch t.Kind() {
		case reflect.Map:
			t = elementType(t.Elem())
		case reflect.Struct:
			fields := map[string]reflect.Type{}
			fieldNames(t, fields)
			next, ok := fields[strings.ToLower(part)]
			if !ok {
				return nil
			}
			t = elementType(next)
		default:
			return nil
		}
	}
	return t
}

// elementType returns the type behind pointers, slices and arrays.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
}
