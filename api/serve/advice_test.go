// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http/httptest"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/unit"
)

// TestAdvice checks the queries of advice, and its answers where there is none.
func TestAdvice(t *testing.T) {
	size, up := unit.Bytes(-1), false
	r := Role{Status: exampleStatus, Advice: func(n unit.Bytes, upload bool) (api.Advice, error) {
		size, up = n, upload
		return api.Advice{Transfers: []api.AdvisedTransfer{{Name: "song"}}}, nil
	}}
	asked := func(r Role, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		Handler(r).ServeHTTP(w, httptest.NewRequest(method, "http://mpbond"+path, nil))
		return w
	}
	if w := asked(r, "GET", "/v2/advice?bytes=8000&direction=up"); w.Code != 200 || size != 8000 || !up ||
		!strings.Contains(w.Body.String(), `"song"`) {
		t.Errorf("%d, %d, %v: %s", w.Code, size, up, w.Body)
	}
	if w := asked(r, "GET", "/v2/advice"); w.Code != 200 || size != 0 || up {
		t.Errorf("%d, %d, %v", w.Code, size, up)
	}
	for _, bad := range []string{"bytes=-1", "bytes=8apples", "bytes=99999999999999999999", "direction=sideways"} {
		if w := asked(r, "GET", "/v2/advice?"+bad); w.Code < 400 || w.Code >= 500 {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
	forgotten := 0
	r.PastForecasts = func() api.PastForecasts { return api.PastForecasts{MedianErrorPercent: 12} }
	r.ForgetHistory = func() error { forgotten++; return nil }
	w := asked(r, "GET", "/v2/advice/history")
	if w.Code != 200 || !strings.Contains(w.Body.String(), ":12") || forgotten > 0 {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	if w := asked(r, "DELETE", "/v2/advice/history"); w.Code != 204 || forgotten != 1 {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	for _, path := range []string{"/v2/advice", "/v2/advice/history"} {
		if w := asked(Role{Status: exampleStatus}, "GET", path); w.Code != 501 {
			t.Errorf("%s of nobody: %d", path, w.Code)
		}
	}
}
