package serve

import (
	"encoding/csv"
	"strings"
	"testing"

	"net/http/httptest"

	"mpbond/api"
)

func TestUsage(t *testing.T) {
	r := Role{Describe: exampleStatus, Usage: func() api.Usage {
		return api.Usage{Role: "helper", Name: "phone",
			Days:   []api.Used{{From: "2026-11-21", Until: "2026-11-22", Link: "wwan0", Purpose: "hs-path", Device: "lap,top", DeviceID: "AAAA", DownBytes: 1 << 40, UpBytes: 7}},
			Months: []api.Used{{From: "2026-11-15", Until: "2026-12-15", Link: "wwan0", Purpose: "hs-path", DownBytes: 9}}}
	}}
	asked := func(r Role, accept string) *httptest.ResponseRecorder {
		q := httptest.NewRequest("GET", "http://mpbond/v1/usage", nil)
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
	const want = "role period from until link purpose device device_id down_bytes up_bytes|" +
		"helper day 2026-11-21 2026-11-22 wwan0 hs-path lap,top AAAA 1099511627776 7|" +
		"helper month 2026-11-15 2026-12-15 wwan0 hs-path   9 0"
	var got []string
	for _, line := range table {
		got = append(got, strings.Join(line, " "))
	}
	if strings.Join(got, "|") != want || err != nil || w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/csv") {
		t.Errorf("%d %v: %q, %v", w.Code, w.Header(), got, err)
	}
	for _, accept := range []string{"text/csv", "*/*"} {
		if w := asked(Role{Describe: exampleStatus}, accept); w.Code != 501 {
			t.Errorf("of nobody, accept %q: %d %s", accept, w.Code, w.Body)
		}
	}
	if w := asked(Role{Describe: exampleStatus, Usage: func() api.Usage { return api.Usage{} }}, ""); !strings.Contains(w.Body.String(), `"days":[],"months":[]`) {
		t.Errorf("of nothing: %s", w.Body)
	}
}
