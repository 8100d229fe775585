// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"mpbond/base/unit"
	"mpbond/lab/app"
)

// Scripts of pages can be loaded by a browser, as real files: a root, scripts, and images that the
// root adds when all scripts have run.

// browserNames lists the browsers that can load pages, the preferred one first. Debian's command is a
// shell script that would survive the program.
var browserNames = [...]string{"/usr/lib/chromium/chromium-headless-shell", "chromium-headless-shell", "chromium",
	"chromium-browser", "google-chrome"}

// pageName returns the directory of the page of a repetition, below the web root.
func pageName(rep int) string { return "page" + strconv.Itoa(rep) }

// tinyImage is a GIF of one pixel. Decoders ignore what follows it.
const tinyImage = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00," +
	"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"

// makePageFiles makes the files of a script with a Browser from the random bytes of blob. Only the root
// may be larger than the script says: it names all other files.
func (a *appFiles) makePageFiles(s app.Script, name string, blob []byte) error {
	dir := filepath.Join(a.root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var failed []error
	for i, r := range s.Requests[1:] {
		content := bytes.Clone(blob[:r.Down])
		if r.Stage == 1 {
			copy(content, "/*")
			for j := 2; j < len(content)-2; j++ {
				content[j] = 'x'
			}
			copy(content[len(content)-2:], "*/")
		} else {
			copy(content, tinyImage)
		}
		failed = append(failed, os.WriteFile(filepath.Join(dir, pageFile(s, i+1)), content, 0o644))
	}
	return errors.Join(append(failed, os.WriteFile(filepath.Join(dir, pageFile(s, 0)), makePageRoot(s), 0o644))...)
}

// pageFile returns the name of the file for request i.
func pageFile(s app.Script, i int) string {
	switch s.Requests[i].Stage {
	case 0:
		return "0.html"
	case 1:
		return strconv.Itoa(i) + ".js"
	}
	return strconv.Itoa(i) + ".gif"
}

// makePageRoot returns the root of a page, filled up to its size. A browser requests all scripts at
// once, and the images when these have run.
func makePageRoot(s app.Script) []byte {
	var page bytes.Buffer
	page.WriteString("<!doctype html><meta charset=utf-8><title>page</title>\n<body><script>" +
		"performance.setResourceTimingBufferSize(10000)\n" +
		"const urlOf = (i, host, kind) => `//${location.hostname}:${" + strconv.Itoa(appHostPort) +
		" + host}/${location.pathname.split(`/`)[1]}/${i}.${kind}`\n")
	list := func(name string, stage int) {
		page.WriteString("const " + name + " = [")
		for _, i := range s.StageOf(stage) {
			fmt.Fprintf(&page, "[%d,%d],", i, s.Requests[i].Host)
		}
		page.WriteString("]\n")
	}
	list("scripts", 1)
	list("images", 2)
	page.WriteString(`let waiting = scripts.length
const addImages = () => { for (const [i, host] of images) document.body.append(Object.assign(new Image(),
  {src: urlOf(i, host, "gif")})) }
if (!waiting) addImages()
for (const [i, host] of scripts) document.body.append(Object.assign(document.createElement("script"),
  {src: urlOf(i, host, "js"), onload: () => { if (!--waiting) addImages() }}))
</script><!--`)
	const end = "-->\n"
	fill := int(s.Requests[0].Down) - page.Len() - len(end)
	page.WriteString(strings.Repeat("x", max(0, fill)) + end)
	return page.Bytes()
}

// browserEntry is a file as the browser's resource timing describes it: times in milliseconds since
// the navigation began.
type browserEntry struct {
	URL      string     `json:"url"`
	Start    float64    `json:"start"`
	First    float64    `json:"first"`
	End      float64    `json:"end"`
	Bytes    unit.Bytes `json:"bytes"`
	Protocol string     `json:"protocol"`
}

// timingScript returns the entries of the page's files and when it was loaded.
const timingScript = `(() => {
	const all = ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
	return { load: all[0].loadEventStart, entries: all.map((e) => ({ url: e.name, start: e.startTime,
		first: e.responseStart, end: e.responseEnd, bytes: e.encodedBodySize, protocol: e.nextHopProtocol })) } })()`

// browserReport is the result of timingScript.
type browserReport struct {
	Load    float64        `json:"load"`
	Entries []browserEntry `json:"entries"`
}

// A client with a browser first prints readyLine. It begins when it gets a line of input, and ends when
// its input ends. So neither start nor end of the browser is measured.
const readyLine = "ready\n"

// loadInBrowser loads the page of the script in a browser when it gets a line from in, and prints an
// app.Log to out. It returns when in has ended.
func (c *AppClient) loadInBrowser(ctx context.Context, in io.Reader, out io.Writer) error {
	browser, stop, err := c.startBrowser(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := io.WriteString(out, readyLine); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	if _, err := lines.ReadString('\n'); err != nil {
		return fmt.Errorf("browser: no line of input says when to begin: %w", err)
	}
	url := fmt.Sprintf("https://%s:%d/%s/%s", c.Web, appHostPort, c.Page, pageFile(c.Script, 0))
	if err := chromedp.Do(browser, chromedp.Navigate(url)); err != nil { // until the load event
		return fmt.Errorf("browser: %w", err)
	}
	var report browserReport
	for report.Load == 0 { // chromedp may return before the browser sets it
		if report, err = chromedp.Run(browser, chromedp.Evaluate[browserReport](timingScript)); err != nil {
			return fmt.Errorf("browser: %w", err)
		}
	}
	log, err := report.logOf(c.Script)
	if err != nil {
		return fmt.Errorf("browser: %w", err)
	}
	if err := json.NewEncoder(out).Encode(log); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)
	return err
}

// findBrowser returns the path of a browser.
func findBrowser() (string, error) {
	for _, name := range browserNames {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", errors.New("no Chromium is installed")
}

// startBrowser starts a browser with an empty cache and an empty page. It returns its context, and stop
// that ends it.
func (c *AppClient) startBrowser(ctx context.Context) (browser context.Context, stop func(), err error) {
	program, err := findBrowser()
	if err != nil {
		return nil, nil, err
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(program), chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.DisableGPU, chromedp.NoSandbox, // the lab runs as root
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("ignore-certificate-errors", true),
		// The browser would load fewer images at a time over what it takes for a slow network.
		chromedp.Flag("force-effective-connection-type", "4G"),
		chromedp.Flag("disable-http2", c.Script.Browser == app.BrowserHTTP1),
	}
	if c.SOCKS != "" {
		options = append(options, chromedp.Flag("proxy-server", "socks5://"+c.SOCKS))
	} else {
		options = append(options, chromedp.Flag("no-proxy-server", true))
	}
	allocator, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	browser, endTab := chromedp.NewContext(allocator)
	stop = func() {
		_ = chromedp.Cancel(browser) // waits for the browser to exit
		endTab()
		endAllocator()
	}
	if err := chromedp.Do(browser, chromedp.Navigate("about:blank")); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s does not start: %w", program, err)
	}
	return browser, stop, nil
}

// logOf returns the report as the log of a script. The browser must have fetched each file once, with
// the protocol of the script.
func (r browserReport) logOf(s app.Script) (app.Log, error) {
	log := app.Log{Requests: make([]app.Outcome, len(s.Requests)), Seconds: r.Load / 1000}
	protocol := map[app.Browser]string{app.BrowserHTTP1: "http/1.1", app.BrowserHTTP2: "h2"}[s.Browser]
	for _, e := range r.Entries {
		i, err := strconv.Atoi(strings.TrimSuffix(path.Base(e.URL), path.Ext(e.URL)))
		if err != nil || i < 0 || i >= len(s.Requests) {
			return log, fmt.Errorf("it fetched %s, which is not of the page", e.URL)
		}
		o := &log.Requests[i]
		switch {
		case o.IsComplete():
			return log, fmt.Errorf("it fetched %s twice", e.URL)
		case e.Protocol != protocol:
			return log, fmt.Errorf("it fetched %s by %q, not %q", e.URL, e.Protocol, protocol)
		case i == 0 && e.Bytes < s.Requests[0].Down:
			return log, fmt.Errorf("%d of at least %d bytes of the page arrived", e.Bytes, s.Requests[0].Down)
		}
		*o = app.Outcome{Start: e.Start / 1000, FirstByte: e.First / 1000, End: e.End / 1000, Down: e.Bytes}
		if i == 0 {
			o.Down = s.Requests[0].Down // the root may be larger
		}
	}
	if r.Load <= 0 {
		return log, errors.New("the page was not loaded")
	}
	return log, nil
}

// browserTime is how long a browser takes to start and to end.
const browserTime = 3 * time.Second
