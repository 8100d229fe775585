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

// checkNumbers refuses a bare number where a setting is a text with a unit or a word: the
// decoder would take 60 for 60 ns. A number that the setting takes as a text too, as 0 for
// no limit, is let through. Into points to the struct that data are for; what else is wrong
// with them is left to the decoder.
func checkNumbers(name string, data []byte, into any) error {
	var p unstable.Parser
	p.Reset(data)
	c := numberChecker{name: name, p: &p}
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyParts(e)
		case unstable.KeyValue:
			if err := c.checkValue(reflect.TypeOf(into), append(table[:len(table):len(table)], keyParts(e)...), e.Value()); err != nil {
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

// checkValue checks the value of key, which into has.
func (c numberChecker) checkValue(into reflect.Type, key []string, v *unstable.Node) error {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if err := c.checkValue(into, append(key[:len(key):len(key)], keyParts(it.Node())...), it.Node().Value()); err != nil {
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
		t := valueType(into, key)
		if t == nil {
			return nil
		}
		text, isText := reflect.New(t).Interface().(encoding.TextUnmarshaler)
		if !isText {
			return nil
		}
		data := v.Data
		if n, err := strconv.ParseInt(strings.ReplaceAll(string(data), "_", ""), 0, 64); v.Kind == unstable.Integer && err == nil {
			data = strconv.AppendInt(nil, n, 10) // 4_194_304 and 0x400000 too
		}
		if err := text.UnmarshalText(data); err != nil {
			at := c.p.Shape(v.Raw).Start
			return fault.New(fault.Config, &Error{File: c.name, Line: at.Line, Column: at.Column, Err: fmt.Errorf("%s: %s", strings.Join(key, "."), explainTypeError(err.Error()))}, tomlHint)
		}
	}
	return nil
}

// keyParts returns the parts of an expression's key.
func keyParts(n *unstable.Node) (key []string) {
	for it := n.Key(); it.Next(); {
		key = append(key, string(it.Node().Data))
	}
	return key
}

// valueType is the type of the value that key has in t, without what collects several of it;
// nil if there is none.
func valueType(t reflect.Type, key []string) reflect.Type {
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

// elementType is what t points to, or is a list of.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
}
