// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/node/endpoint"
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

// TestPlaceRatesAreRefreshed checks when the rates of devices are looked up again.
func TestPlaceRatesAreRefreshed(t *testing.T) {
	var r placeRates
	memory := &locationMemory{currentLocation: func() (string, error) { return "home", nil }}
	one := make([]endpoint.NamedCandidate, 1)
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		name    string
		after   time.Duration
		devices []endpoint.NamedCandidate
		looked  bool
	}{
		{"first", 0, nil, true},
		{"soon after", time.Second, nil, false},
		{"another device", time.Second, one, true},
		{"soon after that", time.Second, one, false},
		{"long after", placeRefreshInterval, one, true},
	} {
		now = now.Add(c.after)
		r.known.Store(nil)
		if r.refreshIfOld(now, c.devices, memory); (r.known.Load() != nil) != c.looked {
			t.Errorf("%s: looked up: %v", c.name, !c.looked)
		}
	}
}
