// SPDX-License-Identifier: Apache-2.0

// Package console is the web console, a page over the local API. Its files are served as written,
// without a build step. Package api/serve serves it beside the API over TCP. In the browser it asks
// the API like any other client, with the token that `mpbond console` put behind the # of its
// address, which browsers do not send.
//
// The page contains no secret: anyone who can connect to the port gets it, but nothing else without
// the token.
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

// contentPolicy lets the page use only its own files and this origin's API: no inline script, no
// other origin, no frame.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// mediaTypes maps file extensions to media types, independent of the system's tables.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// embeddedFileName returns the name of the file for a URL path, "" if there is none.
func embeddedFileName(urlPath string) string {
	name := "page/" + strings.TrimPrefix(urlPath, "/")
	if urlPath == "/" {
		name = "page/index.html"
	}
	if st, err := fs.Stat(embedded, name); err != nil || st.IsDir() {
		return ""
	}
	return name
}

// IsConsoleFile reports whether a request is for a file of the console, not for the API.
func IsConsoleFile(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && embeddedFileName(r.URL.Path) != ""
}

// Handler returns the handler of requests for which IsConsoleFile is true.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := embeddedFileName(r.URL.Path)
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
		_, _ = w.Write(body) // the client has gone
	})
}
