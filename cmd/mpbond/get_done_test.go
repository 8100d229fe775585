// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"mpbond/internal/cli"
)

// TestGetOnloadGoesOn checks that the same command with several URLs fetches only missing files,
// and that --output creates the directory.
func TestGetOnloadGoesOn(t *testing.T) {
	newHome(t)
	t.Chdir(t.TempDir())
	var broken atomic.Bool
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); broken.Load() && !strings.HasSuffix(r.URL.Path, "/1.jpg") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "photo "+r.URL.Path)
	}))
	defer s.Close()
	get := func(file string) (res onloadResult, code int, errs string) {
		t.Helper()
		code, out, errs := runProgram(t, "get", "--onload", "--json", "--interface", "lo", "-o", file, s.URL+"/1.jpg",
			s.URL+"/2.jpg", s.URL+"/3.jpg")
		if err := json.Unmarshal([]byte(out), &res); err != nil {
			t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
		}
		return res, code, errs
	}
	broken.Store(true)
	res, code, errs := get("photos")
	if code != cli.ExitFailure || len(res.Objects) != 1 || len(res.Failed) != 2 || res.Failed[0].Kind != "not_found" {
		t.Fatalf("code %d, %+v, %s", code, res, errs)
	}
	broken.Store(false)
	if err := os.WriteFile("photos/3.jpg", []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	res, code, errs = get("photos")
	if code != cli.ExitFailure || len(res.Objects) != 2 || len(res.Failed) != 1 ||
		!strings.Contains(errs, "photos/3.jpg already exists") || !strings.Contains(errs, "move it away") ||
		asked.Load() != before+1 {
		t.Fatalf("code %d, %+v, %s, %d requests", code, res, errs, asked.Load()-before)
	}
	if text, _ := os.ReadFile("photos/3.jpg"); string(text) != "somebody's" {
		t.Errorf("%q", text)
	}
	if err := os.Remove("photos/3.jpg"); err != nil {
		t.Fatal(err)
	}
	res, code, errs = get("photos")
	if text, _ := os.ReadFile("photos/2.jpg"); code != cli.ExitOK || len(res.Objects) != 3 ||
		string(text) != "photo /2.jpg" || !strings.Contains(res.String(), "2 of them were complete") {
		t.Errorf("code %d, %v, %s, %q", code, res, errs, text)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("MPBOND_HOME"), "get-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
