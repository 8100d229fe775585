// SPDX-License-Identifier: Apache-2.0

package device

import "testing"

func TestIsTunnel(t *testing.T) {
	for _, name := range []string{"", "lo", "no such", "../lo"} {
		if IsTunnel(name) {
			t.Errorf("%q is a tunnel", name)
		}
	}
}
