// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestByPolicy: policy gets the costs of a subflow and, until its rate is measured, the rate seen
// at this location.
func TestByPolicy(t *testing.T) {
	wifi := wire.Terms{Radio: wire.RadioWiFi, Rate: unit.Mbps}
	phone := wire.Terms{Radio: wire.RadioCellular}
	c := &ByPolicy{}
	ask := func(known bool, pending unit.Bytes) bool {
		list := []endpoint.Candidate{
			{
				GuideSubflow: bond.GuideSubflow{
					ID:       1,
					Rate:     20 * unit.Mbps,
					Known:    known,
					Delay:    25 * time.Millisecond,
					QuietFor: time.Minute,
				},
				Terms: wifi,
			},
			{
				GuideSubflow: bond.GuideSubflow{
					ID:       2,
					Rate:     5 * unit.Mbps,
					Known:    true,
					Delay:    35 * time.Millisecond,
					QuietFor: time.Minute,
				},
				Terms:  phone,
				Helped: true,
			},
		}
		if why := c.AllowSubflows(list, bond.Demand{Pending: pending}); list[0].Allowed == (wifi.Tier == wire.TierBackup) ||
			why == "" {
			t.Errorf("%+v: %s", list, why)
		}
		return list[1].Allowed
	}
	if ask(true, 100*unit.KB) || !ask(false, 100*unit.KB) {
		t.Error("100 KB over WiFi of 20 Mbit/s want the helper, or over one that was slow here do not")
	}
	if wifi.Rate = 0; ask(false, 64*unit.KB) || !ask(false, 10*unit.MB) {
		t.Error("without memory 64 KB want the helper, or 10 MB do not")
	}
	wifi.Tier = wire.TierBackup
	if !ask(true, 100) {
		t.Error("data that costs money is used although a helper works")
	}
}

// TestPolicyDemand checks that package policy gets all that a bond knows of a demand.
func TestPolicyDemand(t *testing.T) {
	d := bond.Demand{Pending: 1, Burst: 2, BackloggedFor: 3, More: 4, MoreKnown: true,
		Repetition: bond.Repetition{Count: 6, Bytes: 8, Pause: 9}, NeededIn: 5, SourceRate: 7}
	want := policy.Demand{Pending: 1, Burst: 2, BackloggedFor: 3, More: 4, MoreKnown: true,
		Repetition: policy.Repetition{Count: 6, Bytes: 8, Pause: 9}, NeededIn: 5, SourceRate: 7, Upload: true}
	if got := (&ByPolicy{Upload: true}).policyDemand(d); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestCosts: a subflow has costs if it uses a radio or is not of the first tier.
func TestCosts(t *testing.T) {
	for _, c := range []struct {
		terms wire.Terms
		want  bool
	}{
		{wire.Terms{}, false}, {wire.Terms{Radio: wire.RadioWiFi}, true}, {wire.Terms{Radio: wire.RadioCellular}, true},
		{wire.Terms{Tier: wire.TierBackup}, true},
	} {
		if got := (&ByPolicy{}).Costs(c.terms); got != c.want {
			t.Errorf("%+v: %v, want %v", c.terms, got, c.want)
		}
	}
}

// TestExplain checks that an explanation has the forecast of the choice and of the best other set,
// and that there is none without another set.
func TestExplain(t *testing.T) {
	wifi := endpoint.Candidate{GuideSubflow: bond.GuideSubflow{ID: 1, Rate: 30 * unit.Mbps, Known: true,
		RTT: 20 * time.Millisecond, Delay: 10 * time.Millisecond}, Terms: wire.Terms{Radio: wire.RadioWiFi}}
	lte := wifi
	wifi.InUse = true
	lte.ID, lte.Terms.Radio, lte.QuietFor = 2, wire.RadioCellular, time.Minute
	c := &ByPolicy{}
	text := c.Explain([]endpoint.Candidate{wifi, lte}, bond.Demand{Pending: 1000})
	for _, want := range []string{"expected in 10ms with", "by subflows 1, 2 in 10ms", "12."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if text := c.Explain([]endpoint.Candidate{wifi}, bond.Demand{Pending: 1000}); text != "" {
		t.Errorf("with one subflow: %q", text)
	}
}

// TestPolicySubflow checks what package policy gets to know of a subflow: a guess of its rate grows from
// its window, up to the rate of its packet train. A measured rate and one of this location stay.
func TestPolicySubflow(t *testing.T) {
	c := endpoint.Candidate{GuideSubflow: bond.GuideSubflow{Rate: 2 * unit.Mbps, Ceiling: 3 * unit.Mbps,
		RTT: 80 * time.Millisecond, MinRTT: 60 * time.Millisecond, Delay: 50 * time.Millisecond}}
	s := PolicySubflow(c)
	if s.Window != 20_000 || s.Ceiling != 3*unit.Mbps || s.LeastDelay != 30*time.Millisecond || !s.Direct {
		t.Errorf("a guess: %+v", s)
	}
	c.Terms.Rate = 5 * unit.Mbps
	if s = PolicySubflow(c); s.Window != 0 || s.Rate != 5*unit.Mbps {
		t.Errorf("of this location: %+v", s)
	}
	c.Known = true
	if s = PolicySubflow(c); s.Window != 0 || s.Rate != 2*unit.Mbps {
		t.Errorf("measured: %+v", s)
	}
}

// TestWakeDelay: a radio of LTE that has been quiet for long must wake first.
func TestWakeDelay(t *testing.T) {
	c := endpoint.Candidate{Terms: wire.Terms{Radio: wire.RadioCellular}}
	for quiet, want := range map[time.Duration]time.Duration{0: 0, time.Minute: 260 * time.Millisecond} {
		c.QuietFor = quiet
		if got := (&ByPolicy{}).WakeDelay(c); got != want {
			t.Errorf("quiet for %v: %v, want %v", quiet, got, want)
		}
	}
}
