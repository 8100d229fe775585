// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestAdviceRefusals checks sizes that make no sense, and a primary without a subflow.
func TestAdviceRefusals(t *testing.T) {
	p := newOfflinePrimary(t, time.Minute)
	for _, size := range []unit.Bytes{-1, mostAdvised + 1} {
		if _, err := p.Advice(api.AdviceRequest{Bytes: size}); !fault.Is(err, fault.Usage) {
			t.Errorf("a size of %d: %v", size, err)
		}
	}
	if _, err := p.Advice(api.AdviceRequest{}); !fault.Is(err, fault.NotFound) {
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

// TestAdviceForApp checks which subflows the rules leave to an app, and apps that the bond does not
// carry over subflows of its choice.
func TestAdviceForApp(t *testing.T) {
	rules, err := ParsePolicy("policy.toml", []byte(`
[[rule]]
app = ["sync"]
device = ["phone"]
[[rule]]
app = ["game"]
mode = "block"
[[rule]]
app = ["call"]
mode = "latency"
[[rule]]
app = ["backup"]
device = ["tablet"]
[[rule]]
app = ["browser"]
port = [80]
mode = "block"
`))
	if err != nil {
		t.Fatal(err)
	}
	snapshot := subflowSnapshot{all: []policy.ClassSubflow{{ID: 1, Direct: true, Names: []string{"laptop"}},
		{ID: 2, Names: []string{"phone"}}}}
	p := newPolicy(new(policy.Rules), func() subflowSnapshot { return snapshot }, slog.New(slog.DiscardHandler), nil)
	p.file.active.Store(newActiveRules(rules, nil))
	list := make([]endpoint.NamedCandidate, 2)
	list[0].ID, list[1].ID = 1, 2
	for app, want := range map[string]string{"/usr/bin/sync": "[2]", "sync": "[2]", "/opt/sync2": "[1 2]",
		"browser": "[1 2]", "game": "block", "call": "quickest", "backup": "no device"} {
		some, rule, err := p.candidatesForApp(app, list)
		var got []wire.SubflowID
		for _, c := range some {
			got = append(got, c.ID)
		}
		if err != nil {
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), app) || len(some) > 0 {
				t.Errorf("%s: %v, %v", app, got, err)
			}
		} else if fmt.Sprint(got) != want || rule == "" {
			t.Errorf("%s: %v by %q, want %s", app, got, rule, want)
		}
	}
}
