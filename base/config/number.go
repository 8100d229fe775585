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
	c := numbers{name: name, p: &p}
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyOf(e)
		case unstable.KeyValue:
			if err := c.check(reflect.TypeOf(into), append(table[:len(table):len(table)], keyOf(e)...), e.Value()); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers checks the numbers of one file.
type numbers struct {
	name string
	p    *unstable.Parser
}

// check checks the value of key, which into has.
func (c numbers) check(into reflect.Type, key []string, v *unstable.Node) error {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if err := c.check(into, append(key[:len(key):len(key)], keyOf(it.Node())...), it.Node().Value()); err != nil {
				return err
			}
		}
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			if err := c.check(into, key, it.Node()); err != nil {
				return err
			}
		}
	case unstable.Integer, unstable.Float:
		t := typeOf(into, key)
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
			return fault.New(fault.Config, &Error{File: c.name, Line: at.Line, Column: at.Column, Err: fmt.Errorf("%s: %s", strings.Join(key, "."), explainType(err.Error()))}, tomlHint)
		}
	}
	return nil
}

// keyOf returns the parts of an expression's key.
func keyOf(n *unstable.Node) (key []string) {
	for it := n.Key(); it.Next(); {
		key = append(key, string(it.Node().Data))
	}
	return key
}

// typeOf is the type of the value that key has in t, without what collects several of it;
// nil if there is none.
func typeOf(t reflect.Type, key []string) reflect.Type {
	t = single(t)
	for _, part := range key {
		switch t.Kind() {
		case reflect.Map:
			t = single(t.Elem())
		case reflect.Struct:
			fields := map[string]reflect.Type{}
			fieldNames(t, fields)
			next, ok := fields[strings.ToLower(part)]
			if !ok {
				return nil
			}
			t = single(next)
		default:
			return nil
		}
	}
	return t
}

// single is what t points to, or is a list of.
func single(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
}
