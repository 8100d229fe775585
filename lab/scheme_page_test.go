// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"mpbond/base/unit"
)

// The scheme page has no variants, moves only items, and finds its code in a helper's status.
func TestPageScheme(t *testing.T) {
	if s, err := newSchemeByName("page"); err != nil || s.Capabilities() != (capabilities{items: true, ownReport: true}) {
		t.Error(s, err)
	}
	if _, err := newSchemeByName("page:x"); err == nil {
		t.Error("a variant of it")
	}
	top, err := Triangle("8/0.9/20")
	if err != nil {
		t.Fatal(err)
	}
	p := RunSpec{Topology: top, Schemes: []string{"page"}, Items: []unit.Bytes{1000}, Upload: true, Reps: 1}
	if _, err := p.parseSession(); err != nil {
		t.Error(err)
	}
	if code, err := findPageCode(
		`[{"role":"helper","onload":{"code":"","page":` +
			`{"urls":["http://10.0.0.1:7607/"],"code":"7-AB12-CD34"}}}]`); err != nil ||
		code != "7-AB12-CD34" {
		t.Errorf("%q %v", code, err)
	}
	for _, text := range []string{"", "{}", `{"urls":["code"]}`, `{"code":`} {
		if code, err := findPageCode(text); err == nil {
			t.Errorf("%s: %q", text, code)
		}
	}
}
