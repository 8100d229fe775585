// Package console is the web console: a page over the local API, written by hand
// as it is served, with no tool between. It stands before package api/serve,
// which serves it beside the API at the TCP port; in the browser it asks the API
// like any other client, with the token that `mpbond console` put behind the # of
// its address, which browsers send to nobody.
//
// The page itself holds no secret: whoever may open a connection to the port gets
// it, and nothing else without the token.
package console

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var embedded embed.FS

// contentPolicy lets the page use its own files and this origin's API, and nothing
// else: no script in the page, no other origin, in no frame.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// mediaTypes by the names' ends; what a system's own tables say differs.
var mediaTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// embeddedFile is the name of a path's file, "" if there is none.
func embeddedFile(urlPath string) string {
	name := "page/" + strings.TrimPrefix(urlPath, "/")
	if urlPath == "/" {
		name = "page/index.html"
	}
	if st, err := fs.Stat(embedded, name); err != nil || st.IsDir() {
		return ""
	}
	return name
}

// IsConsoleFile tells whether a request is for the console and not for the API.
func IsConsoleFile(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && embeddedFile(r.URL.Path) != ""
}

// Handler answers requests that Serves is true for.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := embeddedFile(r.URL.Path)
		body, err := embedded.ReadFile(name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		for k, v := range map[string]string{
			"Content-Type":                 mediaTypes[path.Ext(name)],
			"Content-Security-Policy":      contentPolicy,
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store", // another version may run next
		} {
			w.Header().Set(k, v)
		}
		_, _ = w.Write(body) // an error means that nobody listens any more
	})
}
