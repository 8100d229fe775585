// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/csv"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"mpbond/api"
)

func TestUsage(t *testing.T) {
	r := Role{Status: exampleStatus, Usage: func() api.Usage {
		return api.Usage{Role: "helper", Name: "phone",
			Days: []api.UsageEntry{
				{
					From:        "2026-11-21",
					Until:       "2026-11-22",
					Link:        "wwan0",
					Purpose:     "hs-path",
					Device:      "lap,top",
					DeviceID:    "AAAA",
					DownBytes:   1 << 40,
					UpBytes:     7,
					RadioJoules: 12.6,
				},
			},
			Months: []api.UsageEntry{
				{From: "2026-11-15", Until: "2026-12-15", Link: "wwan0", Purpose: "hs-path", DownBytes: 9},
			},
			Caps: []api.Cap{
				{
					Name:      "wwan0",
					Period:    "daily",
					CapBytes:  10,
					UsedBytes: 5,
					RoomBytes: 4,
					State:     "fine",
					Text:      "5 of 10",
				},
			}}
	}}
	asked := func(r Role, accept string) *httptest.ResponseRecorder {
		q := httptest.NewRequest("GET", "http://mpbond/v2/usage", nil)
		q.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		Handler(r).ServeHTTP(w, q)
		return w
	}
	for _, accept := range []string{"", "*/*", "application/json"} {
		if w := asked(r, accept); w.Code != 200 || asJSON(t, r.Usage()) != strings.TrimSpace(w.Body.String()) {
			t.Errorf("accept %q: %d %s", accept, w.Code, w.Body)
		}
	}
	w := asked(r, "text/csv, */*;q=0.1")
	table, err := csv.NewReader(w.Body).ReadAll()
	const want = "role period from until link purpose device device_id down_bytes up_bytes radio_joules|" +
		"helper day 2026-11-21 2026-11-22 wwan0 hs-path lap,top AAAA 1099511627776 7 12.600|" +
		"helper month 2026-11-15 2026-12-15 wwan0 hs-path   9 0 "
	var got []string
	for _, line := range table {
		got = append(got, strings.Join(line, " "))
	}
	if strings.Join(got, "|") != want || err != nil || w.Code != 200 ||
		!strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") {
		t.Errorf("%d %v: %q, %v", w.Code, w.Header(), got, err)
	}
	for _, accept := range []string{"text/csv", "*/*"} {
		if w := asked(Role{Status: exampleStatus}, accept); w.Code != 501 {
			t.Errorf("of nobody, accept %q: %d %s", accept, w.Code, w.Body)
		}
	}
	if w := asked(Role{Status: exampleStatus, Usage: func() api.Usage { return api.Usage{} }}, ""); !strings.Contains(
		w.Body.String(),
		`"days":[],"months":[],"caps":[]`,
	) {
		t.Errorf("of nothing: %s", w.Body)
	}
}

func TestUsageMetrics(t *testing.T) {
	u := api.Usage{
		Days: []api.UsageEntry{
			{From: "2026-11-20", Until: "2026-11-21", Link: "a", DownBytes: 1},
			{
				From:      "2026-11-21",
				Until:     "2026-11-22",
				Link:      "a",
				Purpose:   "pipe",
				Device:    "d",
				DeviceID:  "i",
				DownBytes: 2,
				UpBytes:   3,
			},
		},
		Months: []api.UsageEntry{
			{From: "2026-10-22", Until: "2026-11-22", Link: "a", DownBytes: 4},
			{From: "2026-09-22", Until: "2026-10-22", Link: "a", DownBytes: 5},
		},
	}
	var got []string
	for _, s := range usageSamples(u, "2026-11-21") {
		got = append(got, fmt.Sprint(s.value, s.labels))
	}
	slices.Sort(got)
	if want := []string{"0 [a    up month]", "2 [a pipe d i down day]", "3 [a pipe d i up day]",
		"4 [a    down month]"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("%q, want %q", got, want)
	}
	r := fullRole(nil)
	r.Usage = func() api.Usage {
		return api.Usage{
			Months: []api.UsageEntry{
				{From: "2000-01-01", Until: "9999-01-01", Link: "a", DownBytes: 4},
				{From: "2000-01-01", Until: "9999-01-01", Link: "b\xff0", UpBytes: 6},
			},
		}
	}
	describe := r.Status
	r.Status = func(why bool) api.Status {
		s := describe(why)
		s.Caps = append(
			slices.Clone(s.Caps),
			api.Cap{Name: "wwna0", Period: "daily", CapBytes: 10, State: api.CapNotCounted},
		)
		return s
	}
	w := request(r, "GET", "/metrics", "")
	if strings.Contains(w.Body.String(), "wwna0") {
		t.Error("a cap that is not kept has metrics")
	}
	for _, want := range []string{
		"mpbond_link_bytes{device=\"\",device_id=\"\",direction=\"up\",link=\"b?0\",period=\"month\",purpose=\"\"} 6",
		`mpbond_cap_bytes{name="wwan0",period="daily"} 20`, `mpbond_cap_used_bytes{name="wwan0",period="daily"} 21`,
		`mpbond_cap_reached{name="wwan0",period="daily"} 1`,
		`mpbond_link_bytes{device="",device_id="",direction="down",link="a",period="month",purpose=""} 4`} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
}
