// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// TestAdviceRefusals checks sizes that make no sense, and a primary without a subflow.
func TestAdviceRefusals(t *testing.T) {
	p := newOfflinePrimary(t, time.Minute)
	for _, size := range []unit.Bytes{-1, mostAdvised + 1} {
		if _, err := p.Advice(size, false); !fault.Is(err, fault.Usage) {
			t.Errorf("a size of %d: %v", size, err)
		}
	}
	if _, err := p.Advice(0, false); !fault.Is(err, fault.NotFound) {
		t.Errorf("without a subflow: %v", err)
	}
}
