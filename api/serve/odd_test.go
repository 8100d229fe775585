// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"mpbond/api"
)

// TestMetricsOfOddDevices: a device with an invalid name, or with two bonds of the same beginning,
// does not hide metrics of others.
func TestMetricsOfOddDevices(t *testing.T) {
	r := fullRole(nil)
	status := r.Status
	r.Status = func(why bool) api.Status {
		s := status(why)
		odd := s.Bonds[0]
		odd.ID, odd.Subflows = "odd", slices.Clone(odd.Subflows)
		odd.Subflows[0].Device = "pho\xffne\"\n\x1b\u202e"
		s.Bonds = append(s.Bonds, odd, odd)
		return s
	}
	w := request(r, "GET", "/metrics", "")
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metricList {
		if len(families[m.name].GetMetric()) == 0 {
			t.Errorf("%s is missing", m.name)
		}
	}
	var devices []string
	for _, m := range families["mpbond_subflow_received_bytes_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "device" {
				devices = append(devices, l.GetValue())
			}
		}
	}
	if want := []string{"phone", "pho?ne\"???"}; !slices.Equal(
		slices.Sorted(slices.Values(devices)),
		slices.Sorted(slices.Values(want)),
	) {
		t.Errorf("devices %q, want %q", devices, want)
	}
}
