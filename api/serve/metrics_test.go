// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"mpbond/api"
)

// exampleFleet returns a fleet as one of its servers knows it.
func exampleFleet() *api.Fleet {
	yes, no := true, false
	return &api.Fleet{Name: "acme", Server: "eu1", Expires: time.Now().Add(48 * time.Hour), Engine: "nats://n1",
		EngineLost: true, AgeSeconds: 12.5, Devices: 7, Draining: true, Waiting: 3, Servers: []api.FleetServer{
			{Name: "eu1", Listed: true, Running: &yes, Draining: true}, {Name: "eu2", Listed: true, Running: &yes},
			{Name: "eu3", Listed: true, Running: &yes}, {Name: "us1", Listed: true, Running: &no},
			{Name: "us2", Listed: true, Running: &yes, Full: true},
			{Name: "new", Running: &yes}}}
}

// TestMetrics: the format's own parser reads /metrics, and its linter accepts it; every metric has
// help, type and value.
func TestMetrics(t *testing.T) {
	r := fullRole(nil)
	r.PastForecasts = func() api.PastForecasts {
		return api.PastForecasts{MedianErrorPercent: 25, Forecasts: make([]api.CheckedForecast, 3)}
	}
	r.Handoffs = func() api.Handoffs {
		return api.Handoffs{Links: []api.LinkHandoffs{{Interface: "wwan0", Probability: 0.375}, {Interface: "wwan1"}}}
	}
	w := request(r, "GET", "/metrics", "")
	text := w.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || w.Code != 200 {
		t.Fatal(w.Code, err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metricList {
		f := families[m.name]
		want := "GAUGE"
		if m.counter {
			want = "COUNTER"
		}
		if f == nil || f.GetHelp() != m.help || f.GetType().String() != want || len(f.Metric) == 0 {
			t.Errorf("%s: %v", m.name, f)
		}
	}
	value := func(name string, labels ...string) float64 {
		for _, m := range families[name].GetMetric() {
			var got []string
			for _, l := range m.Label {
				got = append(got, l.GetName()+"="+l.GetValue())
			}
			if slices.Equal(got, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		t.Errorf("%s has no %v: %v", name, labels, families[name])
		return 0
	}
	for name, want := range map[string]float64{"mpbond_subflow_received_bytes_total": 7,
		"mpbond_subflow_received_bytes_per_second": 1e6, "mpbond_subflow_rtt_seconds": 0.00125,
		"mpbond_subflow_expected_stall_seconds":        0.015,
		"mpbond_subflow_pbe_capacity_bytes_per_second": 1e6, "mpbond_subflow_pbe_doubted": 0} {
		if got := value(name, "bond=b", "device=phone", "kind=helped", "peer=home", "subflow=1"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := value("mpbond_wasted_bytes_total", "bond=b", "cause=reinject", "peer=home"); got != 5 {
		t.Errorf("wasted: %v", got)
	}
	if got := value("mpbond_onload_tunnels",
		"device=laptop") + value("mpbond_onload_open") + value("mpbond_onload_left_bytes") +
		value("mpbond_onload_today_bytes"); got != 2+1+7+3 {
		t.Errorf("onloading: %v", got)
	}
	for name, want := range map[string]float64{"engine_lost": 1, "age_seconds": 12.5, "devices": 7,
		"waiting_reports": 3, "draining": 1} {
		if got := value("mpbond_fleet_" + name); got != want {
			t.Errorf("mpbond_fleet_%s is %v, want %v", name, got, want)
		}
	}
	for state, want := range map[string]float64{"running": 2, "draining": 1, "silent": 1, "unlisted": 1} {
		if got := value("mpbond_fleet_servers", "state="+state); got != want {
			t.Errorf("%v servers are %s, want %v", got, state, want)
		}
	}
	if left := 48*3600 - value("mpbond_fleet_list_left_seconds"); left < 0 || left > 60 {
		t.Errorf("the list expires %v s too soon", left)
	}
	if got := value("mpbond_cells_fair_bytes_per_second", "interface=wwan0"); got != 1e6 {
		t.Errorf("cells: %v", got)
	}
	if got := value("mpbond_events_total", "kind=stream_open"); got != 1 {
		t.Errorf("events: %v", got)
	}
	if got := value("mpbond_forecast_error_ratio"); got != 0.25 {
		t.Errorf("forecasts: %v", got)
	}
	if got := value("mpbond_handoff_probability_ratio", "interface=wwan0"); got != 0.375 {
		t.Errorf("handoffs: %v", got)
	}
	if families["go_goroutines"] == nil || families["process_open_fds"] == nil {
		t.Error("runtime and process are missing")
	}
}

// TestFleetMetrics checks that a fleet's metrics are there only where their values are known.
func TestFleetMetrics(t *testing.T) {
	unknown := exampleFleet()
	unknown.AgeSeconds, unknown.Expires = -1, time.Time{}
	primary := &api.Fleet{Name: "acme", Server: "eu1", Expires: time.Now().Add(-time.Hour)}
	for name, c := range map[string]struct {
		fleet *api.Fleet
		want  []string
	}{
		"no fleet":           {},
		"primary":            {primary, []string{"list_left_seconds"}},
		"server that is new": {unknown, []string{"devices", "draining", "engine_lost", "servers", "waiting_reports"}},
	} {
		e := Role{Status: func(bool) api.Status { return api.Status{Fleet: c.fleet} }}.collectMetrics(time.Now())
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(&e.buf)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, family := range slices.Sorted(maps.Keys(families)) {
			if rest, ok := strings.CutPrefix(family, "mpbond_fleet_"); ok {
				got = append(got, rest)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if left := families["mpbond_fleet_list_left_seconds"]; left != nil && left.Metric[0].Gauge.GetValue() >= 0 {
			t.Errorf("%s: an expired list has time left: %v", name, left)
		}
	}
}
