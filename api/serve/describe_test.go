// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"maps"
	"testing"
)

func TestReadComments(t *testing.T) {
	got := map[string]string{}
	readComments(
		"package x\n\n// A is one\n// thing.\ntype A struct {\n\t// B is above.\n"+
			"\tB int `json:\"b,omitempty\"` // and behind\n\n\t// Nobody's.\n\n\tC int `json:\"c_ms\"`\n\tD int\n}\n\n"+
			"// E is\n//   not a struct.\ntype E int\n",
		got,
	)
	want := map[string]string{
		"A":      "A is one thing.",
		"A.b":    "B is above. and behind",
		"A.c_ms": "",
		"E":      "E is not a struct.",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
