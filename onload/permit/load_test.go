// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write replaces a file atomically.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// TestLoads checks the parsing and the maximum age of loads.
func TestLoads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "load")
	page, changed := "0.25", time.Time{}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !changed.IsZero() {
			w.Header().Set("Last-Modified", changed.UTC().Format(http.TimeFormat))
		}
		if q.URL.Path != "/load" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, page)
	}))
	defer site.Close()
	for text, want := range map[string]float64{"0": 0, "1\n": 1, " 42 % ": .42, "0.5": .5, "": -1, "x": -1, "1.1": -1,
		"-1": -1, "NaN": -1, "101%": -1, strings.Repeat("0", 2000): 0} {
		write(t, path, text)
		page = text
		for _, at := range []string{path, site.URL + "/load"} {
			if got, err := ReadLoad(t.Context(), at); (err != nil) != (want < 0) || err == nil && got != want {
				t.Errorf("%s has %.20q: %v, %v", at, text, got, err)
			}
		}
	}
	write(t, path, "0.5")
	old := time.Now().Add(-maxLoadAge - time.Second)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	page, changed = "0.5", time.Now()
	if got, err := ReadLoad(t.Context(), site.URL+"/load"); err != nil || got != .5 {
		t.Errorf("a new page: %v, %v", got, err)
	}
	changed = old
	for _, at := range []string{path, path + "x", site.URL, site.URL + "/load", "http://127.0.0.1:1"} {
		if got, err := ReadLoad(t.Context(), at); err == nil {
			t.Errorf("%s: %v", at, got)
		}
	}
}
