// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"
)

// TestFactsBounds: impossible facts are refused.
func TestFactsBounds(t *testing.T) {
	good := Facts{Link: "eth0"}.AppendPayload(nil)
	for _, c := range []struct {
		at   int
		v    byte
		fine bool
	}{
		{0, 101, true}, {0, 102, false}, {1, 2, true}, {1, 3, false}, {3, 3, true}, {3, 4, false}, {4, 2, true},
		{4, 3, false}, {5, 101, true}, {5, 102, false}, {6, 9, false},
	} {
		b := append([]byte(nil), good...)
		b[c.at] = c.v
		if _, err := ParseFacts(b); (err == nil) != c.fine {
			t.Errorf("byte %d is %d: %v", c.at, c.v, err)
		}
	}
	hot := append([]byte{0, 0, 0xff, 0xff, 0x03}, good[3:]...) // 65535 tenths of a kelvin
	if _, err := ParseFacts(hot); err == nil {
		t.Error("6280 °C are taken")
	}
	long := Facts{RefusalReason: strings.Repeat("x", MaxText+1)}
	if f, err := ParseFacts(long.AppendPayload(nil)); err != nil || len(f.RefusalReason) != MaxText {
		t.Errorf("a long text: %d bytes, %v", len(f.RefusalReason), err)
	}
}
