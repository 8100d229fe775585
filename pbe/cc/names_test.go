// SPDX-License-Identifier: Apache-2.0

package cc_test

import (
	"fmt"
	"testing"

	"mpbond/pbe/cc"
)

// TestNames: each name gives a different controller, other names none.
func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range cc.Names {
		kind := fmt.Sprintf("%T", cc.New(name, 1))
		if other := seen[kind]; other != "" || cc.New(name, 1) == nil {
			t.Errorf("%s is a %s, as %q", name, kind, other)
		}
		seen[kind] = name
	}
	if c := cc.New("reno", 1); c != nil {
		t.Errorf("reno is %T", c)
	}
}
