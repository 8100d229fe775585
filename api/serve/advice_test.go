// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http/httptest"
	"strings"
	"testing"

	"mpbond/api"
)

// TestAdvice checks the queries of advice, and its answers where there is none.
func TestAdvice(t *testing.T) {
	asks := api.AdviceRequest{Bytes: -1}
	r := Role{Status: exampleStatus, Advice: func(r api.AdviceRequest) (api.Advice, error) {
		asks = r
		return api.Advice{Transfers: []api.AdvisedTransfer{{Name: "song"}}}, nil
	}}
	asked := func(r Role, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		Handler(r).ServeHTTP(w, httptest.NewRequest(method, "http://mpbond"+path, nil))
		return w
	}
	want := api.AdviceRequest{Bytes: 8000, Upload: true, App: "/bin/a b&c"}
	if w := asked(r, "GET", "/v2/advice?bytes=8000&direction=up&app=%2Fbin%2Fa+b%26c"); w.Code != 200 || asks != want ||
		!strings.Contains(w.Body.String(), `"song"`) {
		t.Errorf("%d, %+v: %s", w.Code, asks, w.Body)
	}
	if w := asked(r, "GET", "/v2/advice"); w.Code != 200 || asks != (api.AdviceRequest{}) {
		t.Errorf("%d, %+v", w.Code, asks)
	}
	for _, bad := range []string{"app=" + strings.Repeat("x", 5000), "bytes=-1", "bytes=8apples",
		"bytes=99999999999999999999", "direction=sideways"} {
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
