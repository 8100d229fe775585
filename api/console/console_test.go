package console

import (
	"io/fs"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPage: what the page asks for is there, and nothing in it needs a hole in
// the Content-Security-Policy.
func TestPage(t *testing.T) {
	refers := regexp.MustCompile(`(?:from|src=|href=)\s*"(\./)?([a-z]+\.(?:js|css|svg))"`)
	inline := regexp.MustCompile(`<script>|<style|\sstyle=|\son[a-z]+="|javascript:|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://[^"]*\.js`)
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
		{"POST", "/", false}, {"GET", "/v1/status", false}, {"GET", "/page/index.html", false}, {"GET", "/../console.go", false}, {"GET", "//", false}, {"GET", "/openapi.json", false}, {"GET", "/page", false}, {"GET", "/.", false},
	} {
		r := httptest.NewRequest(c.method, "http://localhost/", nil)
		r.URL.Path = c.path
		if got := Serves(r); got != c.want {
			t.Errorf("%s %s: %v", c.method, c.path, got)
		}
	}
}

func TestHeaders(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/", nil))
	csp := strings.Split(w.Header().Get("Content-Security-Policy"), "; ")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !slices.Contains(csp, want) {
			t.Errorf("no %s in %q", want, csp)
		}
	}
	if strings.Contains(strings.Join(csp, " "), "unsafe") {
		t.Errorf("%q", csp)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Type": "text/html; charset=utf-8", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
