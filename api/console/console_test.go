// SPDX-License-Identifier: Apache-2.0

package console

import (
	"io/fs"
	"math"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPage: all files that the page requests exist, and nothing in it needs an exception in the
// Content-Security-Policy.
func TestPage(t *testing.T) {
	refers := regexp.MustCompile(`(?:from|src=|href=)\s*"(\./)?([a-z]+\.(?:js|css|svg))"`)
	inline := regexp.MustCompile(
		`<script>|<style|\sstyle=|\son[a-z]+="|javascript:|innerHTML|outerHTML|insertAdjacentHTML|` +
			`document\.write|\beval\(|https?://[^"]*\.js`,
	)
	asked := map[string]bool{"page/index.html": true}
	err := fs.WalkDir(embedded, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		if m := inline.Find(body); m != nil {
			t.Errorf("%s has %q", name, m)
		}
		if mediaTypes[path.Ext(name)] == "" {
			t.Errorf("%s: what is it?", name)
		}
		if n := strings.Count(string(body), "\n"); n > 600 {
			t.Errorf("%s has %d lines", name, n)
		}
		for _, m := range refers.FindAllSubmatch(body, -1) {
			other := "page/" + string(m[2])
			asked[other] = true
			if _, err := fs.Stat(embedded, other); err != nil {
				t.Errorf("%s asks for %s: %v", name, other, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all, _ := fs.Glob(embedded, "page/*")
	for _, name := range all {
		if !asked[name] {
			t.Errorf("nothing asks for %s", name)
		}
	}
}

func TestServes(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         bool
	}{
		{"GET", "/", true}, {"HEAD", "/", true}, {"GET", "/console.js", true}, {"GET", "/index.html", true},
		{"POST", "/", false}, {"GET", "/v2/status", false}, {"GET", "/page/index.html", false},
		{"GET", "/../console.go", false}, {"GET", "//", false}, {"GET", "/openapi.json", false}, {"GET", "/page", false},
		{"GET", "/.", false},
	} {
		r := httptest.NewRequest(c.method, "http://localhost/", nil)
		r.URL.Path = c.path
		if got := IsConsoleFile(r); got != c.want {
			t.Errorf("%s %s: %v", c.method, c.path, got)
		}
	}
}

func TestHeaders(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/", nil))
	csp := strings.Split(w.Header().Get("Content-Security-Policy"), "; ")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
		"form-action 'none'"} {
		if !slices.Contains(csp, want) {
			t.Errorf("no %s in %q", want, csp)
		}
	}
	if strings.Contains(strings.Join(csp, " "), "unsafe") {
		t.Errorf("%q", csp)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Content-Type": "text/html; charset=utf-8", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestColours: text and chart lines contrast with their background in light and dark (WCAG 2.1,
// 1.4.3 and 1.4.11).
func TestColours(t *testing.T) {
	css, err := embedded.ReadFile("page/console.css")
	if err != nil {
		t.Fatal(err)
	}
	light, rest, _ := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	dark, _, _ := strings.Cut(rest, "\n}")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{6})`).FindAllStringSubmatch(text, -1) {
			colours[m[1]] = relativeLuminance(t, m[2])
		}
		for colour, want := range map[string]float64{"text": 4.5, "soft": 4.5, "series-0": 3, "series-1": 3, "series-2": 3,
			"series-3": 3, "series-4": 3, "series-5": 3, "series-6": 3, "series-7": 3} {
			a, b := colours[colour], colours["card"]
			if contrast := (max(a, b) + 0.05) / (min(a, b) + 0.05); contrast < want {
				t.Errorf("%s %s has a contrast of %.1f", name, colour, contrast)
			}
		}
		if len(colours) < 20 {
			t.Errorf("%s has %d colours", name, len(colours))
		}
	}
}

// relativeLuminance returns the relative luminance of a colour (WCAG 2.1).
func relativeLuminance(t *testing.T, hex string) (sum float64) {
	rgb, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range []float64{0.0722, 0.7152, 0.2126} {
		v := float64(rgb>>(8*i)&0xff) / 0xff
		if v > 0.04045 {
			v = math.Pow((v+0.055)/1.055, 2.4)
		} else {
			v /= 12.92
		}
		sum += part * v
	}
	return sum
}
