// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/unit"
	"mpbond/lab/app"
)

// pageScript is a page with two scripts and an image, from two hosts.
func pageScript(browser app.Browser) app.Script {
	return app.Script{App: "page", Connections: 6, TLS: true, Browser: browser, Requests: []app.Request{
		{Down: 2000}, {Stage: 1, Down: 500}, {Stage: 1, Host: 1, Down: 600}, {Stage: 2, Host: 1, Down: 50_000}}}
}

// TestPageFiles checks the files of a page.
func TestPageFiles(t *testing.T) {
	s := pageScript(app.BrowserHTTP1)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	a := &appFiles{root: t.TempDir()}
	blob := make([]byte, 60_000)
	for i := range blob {
		blob[i] = byte(i * 7)
	}
	if err := a.makePageFiles(s, "page0", blob); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		size        int
		begin, ends string
	}{"0.html": {2000, "<!doctype html>", "-->\n"}, "1.js": {500, "/*xx", "xx*/"}, "2.js": {600, "/*", "*/"},
		"3.gif": {50_000, "GIF89a", string(blob[49_990:50_000])}} {
		got, err := os.ReadFile(filepath.Join(a.root, "page0", name))
		if err != nil || len(got) != c.size || !strings.HasPrefix(string(got), c.begin) ||
			!strings.HasSuffix(string(got), c.ends) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	root := string(makePageRoot(s))
	for _, want := range []string{"scripts = [[1,0],[2,1],]", "images = [[3,1],]"} {
		if !strings.Contains(root, want) {
			t.Errorf("%q is not in %s", want, root)
		}
	}
	s.Requests[0].Down = 100
	if n := len(makePageRoot(s)); n < 500 {
		t.Errorf("the root was cut to %d bytes", n)
	}
}

// TestBrowserLog checks what a browser's report must say.
func TestBrowserLog(t *testing.T) {
	s := pageScript(app.BrowserHTTP2)
	entry := func(url string, n unit.Bytes) browserEntry {
		return browserEntry{"https://10.0.0.1:9000/page0/" + url, 1, 20, 30, n, "h2"}
	}
	whole := func() browserReport {
		return browserReport{Load: 40, Entries: []browserEntry{entry("0.html", 2100), entry("1.js", 500), entry("2.js", 600),
			entry("3.gif", 50_000)}}
	}
	log, err := whole().logOf(s)
	if err == nil {
		err = log.Check(s)
	}
	if err != nil || log.Seconds != .04 || log.LoadTime() != .03 || log.Requests[0].Down != 2000 {
		t.Errorf("%+v, %v", log, err)
	}
	for name, change := range map[string]func(*browserReport){
		"twice":           func(r *browserReport) { r.Entries = append(r.Entries, entry("3.gif", 50_000)) },
		"not of the page": func(r *browserReport) { r.Entries = append(r.Entries, entry("favicon.ico", 5)) },
		"not \"h2\"":      func(r *browserReport) { r.Entries[2].Protocol = "http/1.1" },
		"1000 of":         func(r *browserReport) { r.Entries[0].Bytes = 1000 },
		"49999":           func(r *browserReport) { r.Entries[3].Bytes = 49_999 },
		"not complete":    func(r *browserReport) { r.Entries = r.Entries[:3] },
		"not loaded":      func(r *browserReport) { r.Load = 0 },
		"contradict":      func(r *browserReport) { r.Load = 25 },
	} {
		r := whole()
		change(&r)
		log, err := r.logOf(s)
		if err == nil {
			err = log.Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBrowserPages loads pages in a real browser, over one link, by kernel MPTCP and by mpbond.
func TestBrowserPages(t *testing.T) {
	t.Parallel()
	needPrograms(t, "nginx", "ip", "mptcpize")
	if _, err := findBrowser(); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil {
		t.Skip("needs a kernel with MPTCP")
	}
	schemes := []string{"single:if=wlan0", "mptcp:own:first=wlan0"}
	if _, err := findProgram("mpbond"); err == nil { // exp run s10 --quick always has it
		schemes = append(schemes, "mpbond:if=wlan0+wwan0")
	}
	for _, browser := range []app.Browser{app.BrowserHTTP1, app.BrowserHTTP2} {
		script := pageScript(browser)
		for i := range 40 {
			script.Requests = append(script.Requests, app.Request{Stage: 2, Host: i % 4, Down: 3000})
		}
		p := RunSpec{Topology: twoOwnLinks(t), Reps: 1, KeepDisturbed: true,
			Schemes: schemes, App: func(int) app.Script { return script }}
		made := 0
		err := Run(t.Context(), p, func(r Result) {
			if made++; r.Error != "" || r.App == nil {
				t.Errorf("%s, %s: %s", browser, r.Scheme, r.Error)
				return
			}
			if image := r.App.Requests[3]; image.Down != 50_000 || image.Start < r.App.Requests[2].End ||
				r.App.LoadTime() > r.Seconds || r.Links["wlan0"] == 0 {
				t.Errorf("%s, %s: %+v, %v", browser, r.Scheme, r.App, r.Links)
			}
		})
		if err != nil || made != len(p.Schemes) {
			t.Errorf("%s: %d of %d transfers: %v", browser, made, len(p.Schemes), err)
		}
	}
}

// TestBrowserWithoutInput checks that a client with a browser does not wait for a begin that never
// comes.
func TestBrowserWithoutInput(t *testing.T) {
	t.Parallel()
	if _, err := findBrowser(); err != nil {
		t.Skip(err)
	}
	var out bytes.Buffer
	c := AppClient{Script: pageScript(app.BrowserHTTP2)}
	err := c.loadInBrowser(t.Context(), strings.NewReader(""), &out)
	if err == nil || !strings.Contains(err.Error(), "when to begin") || out.String() != readyLine {
		t.Errorf("%v; %q", err, &out)
	}
}
