// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/node/helper"
	"mpbond/node/primary"
	"mpbond/node/server"
)

// TestBareNumbers checks that files reject numbers without a unit for times, rates, volumes and
// words: 60 would be 60 ns. Only sizes may be bare: they are bytes.
func TestBareNumbers(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range []any{primary.Config{}, server.Config{}, helper.Config{}, helperConfig{}, dualConfig{},
		onloadConfig{}, pageConfig{}, policy.File{}, policy.RuleSpec{}} {
		of := reflect.TypeOf(file)
		eachSetting(of, "", func(line, name string, leaf reflect.Type) {
			seen[leaf.String()] = true
			err := config.Parse("x.toml", []byte(line), reflect.New(of).Interface())
			if !fault.Is(err, fault.Config) || fault.HintOf(err) == "" ||
				!strings.Contains(err.Error(), "x.toml:1") || !strings.Contains(err.Error(), name) {
				t.Errorf("%v: %s: %v", of, line, err)
			}
		})
	}
	for _, text := range []string{"4194304", "4_194_304", "0x400000", `"4194304"`} {
		var c helper.Config
		if err := config.Parse("x.toml", []byte("buffer = "+text), &c); err != nil || c.Buffer != 4194304 {
			t.Errorf("buffer = %s: %v, %v", text, c.Buffer, err)
		}
	}
	for _, leaf := range []any{config.Duration(0), unit.Rate(0), policy.Volume(0), policy.Mode(0)} {
		if !seen[reflect.TypeOf(leaf).String()] {
			t.Errorf("no setting of %T was tried, of %v", leaf, seen)
		}
	}
}

// eachSetting calls f for each setting of t that is written as text and stored as a number, with a
// line that gives it a bare number.
func eachSetting(t reflect.Type, prefix string, f func(line, name string, leaf reflect.Type)) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if field.Anonymous && name == "" {
			eachSetting(field.Type, prefix, f)
			continue
		}
		leaf, format := field.Type, "%s = 60"
		key := prefix + name
		for leaf.Kind() == reflect.Slice || leaf.Kind() == reflect.Pointer || leaf.Kind() == reflect.Map {
			switch leaf.Kind() {
			case reflect.Slice:
				format = "%s = [60]"
			case reflect.Map:
				key += ".some"
			}
			leaf = leaf.Elem()
		}
		switch {
		case leaf == reflect.TypeFor[unit.Bytes]():
		case isText(leaf) && leaf.Kind() >= reflect.Int && leaf.Kind() <= reflect.Float64:
			f(fmt.Sprintf(format, key), name, leaf)
		case leaf.Kind() == reflect.Struct && format != "%s = [60]":
			eachSetting(leaf, key+".", f)
		}
	}
}
