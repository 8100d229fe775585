// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"mpbond/api/client"
	"mpbond/e2e/rig"
)

// TestConsole goes through the console as a person does, without a mouse: it is
// let in, pairs a device, watches a transfer, cuts a link, and takes the device
// away again.
func TestConsole(t *testing.T) {
	b := newBrowser(t, nil)
	w := newWorld(t)
	helper := w.house()
	for _, step := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"let in", func(t *testing.T) { letIn(t, w, b) }},
		{"pair", func(t *testing.T) { pair(t, w, b) }},
		{"transfer", func(t *testing.T) { transfer(t, w, b) }},
		{"facts", func(t *testing.T) { told(t, b) }},
		{"pictures", func(t *testing.T) { pictures(t, b) }},
		{"policy", func(t *testing.T) { policy(t, w, b) }},
		{"usage", func(t *testing.T) { used(t, b) }},
		{"several bonds", func(t *testing.T) { severalBonds(t, b) }},
		{"everybody", func(t *testing.T) { everybody(t, b) }},
		{"cut", func(t *testing.T) { cut(t, b, helper) }},
		{"rename and revoke", func(t *testing.T) { revoke(t, b) }},
	} {
		if !t.Run(step.name, step.f) {
			break
		}
	}
	b.wellBehaved()
}

// letIn: without the token nothing is told; with the address that mpbond console
// prints all is, and the token is in it no longer.
func letIn(t *testing.T, w *world, b *browser) {
	b.TB = t
	at := w.console("primary")
	page, token, _ := strings.Cut(at, "#token=")
	b.open(page)
	b.says("main", "mpbond console")
	b.press("Token") // sends nothing: it is empty
	b.do(chromedp.KeyEvent("wrong\r"))
	b.says("[role=alert]", "The token is wrong for this mpbond.")
	if said := b.text("body"); strings.Contains(said, "laptop") {
		t.Errorf("a stranger is told %q", said)
	}
	b.do(chromedp.KeyEvent(token + "\r"))
	b.says(".whoami", "laptop · primary")
	b.open(at)
	b.says(".whoami", "laptop · primary")
	if now := within(b, chromedp.Location()); strings.Contains(now, token) || now != page+"#overview" {
		t.Errorf("the address is %q", now)
	}
	b.says("#topology desc", ": idle.")
}

// pair: the helper's own console shows a code, as text and as a picture, and the
// primary's takes it.
func pair(t *testing.T, w *world, b *browser) {
	b.TB = t
	b.open(w.console("helper"))
	b.says(".whoami", "phone · helper")
	b.press("Devices")
	b.until("the code that it showed when it began", `document.querySelector("#invitation")`)
	first := b.text("#invitation")
	b.press("Show another code")
	b.until("another code", `document.querySelector("#invitation").textContent !== `+quoted(first))
	b.until("a QR code", `document.querySelector(".qr img")?.naturalWidth > 0`)
	code := b.text("#invitation")
	b.open(w.console("primary"))
	b.press("Devices")
	b.tabTo("Code that the other device shows")
	b.do(chromedp.KeyEvent("0000-0000" + code[strings.Index(code, "@"):] + "\r"))
	b.says("#pairing", "failed")
	b.until("it has ended", `document.querySelector("form button").textContent === "Pair"`)
	b.tabTo("Code that the other device shows")
	b.do(chromedp.KeyEvent(code + "\r"))
	b.says("#pairing", "phone as helper")
	b.says("tbody th", "phone")
	b.press("Overview")
	b.says("#topology text", "phone")
	b.until("a link to the phone", `document.querySelector('#topology [data-key="primary laptop>helper phone"][data-state=up]')`)
}

// transfer: what an app receives is seen at each link, as thick as it is quick, in
// numbers and in the plots.
func transfer(t *testing.T, w *world, b *browser) {
	b.TB = t
	b.until("thin links", `[...document.querySelectorAll("#topology .link")].every((l) => l.getAttribute("stroke-width") < 3)`)
	w.download()
	for _, link := range []string{"primary laptop>helper phone", "primary laptop>server"} {
		b.until(link+" is thick", fmt.Sprintf(`[...document.querySelectorAll("#topology g")].some((g) => g.dataset.key?.startsWith(%s) && g.querySelector(".link")?.getAttribute("stroke-width") > 5)`, quoted(link)))
	}
	b.until("no link is thicker than the thickest", `[...document.querySelectorAll("#topology .link")].every((l) => l.getAttribute("stroke-width") <= 16)`)
	b.says("#topology .rate", "↓")
	b.until("a plot of the phone", `/phone: [\d.]+ Mbit\/s now/.test(`+chartWords+`)`)
	b.until("it is drawn", `document.querySelector(".plot .line").getTotalLength() > 0`)
	b.press("Traffic")
	b.says("main td", "redundant")
	b.press("Values as a table")
	b.until("values", `document.querySelectorAll("details tbody tr").length > 0`)
	app, err := os.Executable() // this is the app
	if err != nil {
		t.Fatal(err)
	}
	app = filepath.Base(app)
	b.says("main td", app)
	for _, c := range [][2]string{{"apps", "Down by app.*" + regexp.QuoteMeta(app) + `: [\d.]+ Mbit/s now`}, {"destinations", `Down by destination.*127\.0\.0\.1: [\d.]+ Mbit/s now`}, {"pad", "ms now"}} {
		choose(b, "chart-2-plot", c[0])
		b.until("a plot of "+c[0], fmt.Sprintf(`new RegExp(%s).test(%s)`, quoted(c[1]), chartWords))
	}
}

// told: what the helper tells of its battery, heat and link is seen, and what its
// radio took for the transfer.
func told(t *testing.T, b *browser) {
	b.TB = t
	b.press("Devices")
	b.until("the phone's facts", `(() => { const row = [...document.querySelectorAll("[aria-labelledby=h-facts] tbody tr")].find((r) => r.firstChild.textContent === "phone");
		const cells = [...(row?.children ?? [])].map((c) => c.textContent).join("|");
		return cells.startsWith("phone|55 % |31.5 °C|cellular, ") && cells.includes("|yes, it costs money|70 %|") && / J \(cellular [^)]+\)$/.test(cells) })()`)
	b.until("a battery as long as it is full", `document.querySelector("[aria-labelledby=h-facts] meter").value === 55`)
	b.press("Overview")
	b.says("#topology text", "55 %")
	b.says("#topology desc", "Battery of helper phone: 55 %.")
}

// pictures: that of the devices, and plots, are saved as files that others can
// read.
func pictures(t *testing.T, b *browser) {
	b.TB = t
	dir := b.downloads()
	b.press("Overview")
	for _, picture := range []string{"topology", "devices"} {
		group := map[string]string{"topology": "This picture as a file", "devices": "This plot as a file"}[picture]
		for _, format := range []string{"SVG", "PNG", "CSV"} {
			b.until("the button", fmt.Sprintf(`(() => { const e = [...document.querySelectorAll('[role=group][aria-label=%s] button')].find((e) => e.textContent === %s); e?.click(); return e })()`, quoted(group), quoted(format)))
			body := b.saved(filepath.Join(dir, "mpbond-"+picture+"."+strings.ToLower(format)))
			switch format {
			case "PNG":
				if img, err := png.Decode(bytes.NewReader(body)); err != nil || img.Bounds().Dx() < 700 {
					t.Errorf("%s: %v", picture, err)
				}
			case "SVG":
				if err := xml.Unmarshal(body, new(struct{})); err != nil || !bytes.Contains(body, []byte(">phone<")) || !bytes.Contains(body, []byte(`fill="rgb(`)) {
					t.Errorf("%s: %v: %s", picture, err, body)
				}
			case "CSV":
				rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
				if err != nil || len(rows) < 3 || !strings.Contains(string(body), "phone") {
					t.Errorf("%s: %v: %s", picture, err, body)
				}
			}
		}
	}
}

// choose chooses an option.
func choose(b *browser, id, value string) {
	b.Helper()
	b.until("choosing "+value, fmt.Sprintf(`(() => { const s = document.getElementById(%s); s.value = %s; s.dispatchEvent(new Event("change")); return s.value })()`, quoted(id), quoted(value)))
}

// policy: a text with a mistake is told of where it is, and not taken; the mended
// one is in force at once.
func policy(t *testing.T, w *world, b *browser) {
	b.TB = t
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	if code := w.fetch(other.URL); code != http.StatusOK {
		t.Fatalf("before: %d", code)
	}
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	b.press("Policy")
	b.until("what is in force", `document.querySelector("#policy-text")?.readOnly === false`)
	b.tabTo("Rules for apps and destinations, and device tables, as TOML")
	b.do(chromedp.KeyEvent("[[rule]]\rname = \"other\"\rport = [" + port + "]\rmod = \"block\"\r"))
	b.says("#policy-verdict", "did you mean mode?")
	b.press("Put in force")
	b.until("it is refused", `document.querySelector("#policy-text").getAttribute("aria-invalid") === "true"`)
	if code := w.fetch(other.URL); code != http.StatusOK {
		t.Errorf("with a text that cannot be used: %d", code)
	}
	b.press("Go to line 4") // which marks it
	b.do(chromedp.KeyEvent("mode = \"block\""))
	b.says("#policy-verdict", "Usable: 1 rule.")
	b.press("Host")
	b.do(chromedp.KeyEvent("example.org\t"))
	b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), chromedp.KeyEvent(port+"\r"))
	b.says("#flow-answer", "Rule “other”: block.")
	b.says("#flow-answer", "not in force")
	b.press("Put in force")
	b.says("#policy-verdict", "In force: 1 rule.")
	b.says("main tbody th", "other")
	if code := w.fetch(other.URL); code != http.StatusForbidden {
		t.Errorf("a rule says block: %d", code)
	}
	b.until("it was counted", `[...document.querySelectorAll("main tbody td.n")].some((e) => Number(e.textContent) > 0)`)
	// Where mpbond may not write the file, as in a service, it is said beforehand.
	const button = `[...document.querySelectorAll("main button")].find((e) => e.textContent === "Put in force")`
	b.do(chromedp.Evaluate[chromedp.Void](`window.realFetch = window.fetch;
		window.fetch = async (...a) => { const r = await realFetch(...a); return a[0] === "/v2/policy" ? new Response(JSON.stringify({ ...await r.json(), read_only: true })) : r; }; undefined`))
	b.says("main p", "change it by hand")
	b.until("it cannot be pressed", button+`.disabled`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.fetch = realFetch; undefined`))
	b.until("it can be pressed", button+`.disabled === false`)
}

// severalBonds: a device that has two bonds at once, as while its doctor measures,
// is one device with one link, and leaves nothing behind.
func severalBonds(t *testing.T, b *browser) {
	b.TB = t
	const path = `{ id: 1, kind: "direct", state: "up", rx_rate_bps: 4e6, tx_rate_bps: 1e6 }, { id: 2, kind: "helped", device: "phone", state: "up", rx_rate_bps: 1e6, tx_rate_bps: 1e6 }`
	got := within(b, chromedp.Evaluate[string](`(async () => {
		const { model } = await import("/topology.js"), { keyed } = await import("/dom.js");
		const bond = { peer: "laptop", subflows: [`+path+`] };
		const m = model({ role: "server", name: "home", devices: [], bonds: [bond, { peer: "laptop", subflows: [{ ...bond.subflows[0], state: "joining" }] }, bond] });
		const parent = document.createElement("div"), make = () => document.createElement("p");
		const count = (...items) => { keyed(parent, items, (i) => i, make); return [...parent.children].map((e) => e.dataset.key).join(""); };
		return JSON.stringify([m.links.map((l) => [l.id, l.state, l.up, l.down, l.subflows.length]), bond.subflows.length, m.nodes.length, count("a", "a", "b"), count("a", "a", "b"), count("b", "a")]);
	})()`, chromedp.EvalAwaitPromise))
	const want = `[[["primary laptop>server home","up",12000000,3000000,3],["primary laptop>helper phone","up",2000000,2000000,2],["helper phone>server home","up",2000000,2000000,2]],2,3,"aab","aab","ba"]`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// used: what was counted is told, as numbers and as a picture.
func used(t *testing.T, b *browser) {
	b.TB = t
	b.press("Usage")
	b.until("months and days", `[...document.querySelectorAll("main tbody td")].filter((e) => e.textContent === "123 MB").length === 2`)
	b.says("main tbody td", "wlan0")
	b.until("bars", `document.querySelector(".plot .bar").getBBox().height > 0 && /: 123 MB/.test(`+chartWords+`)`)
	b.until("energies", `[...document.querySelectorAll("main tbody td")].filter((e) => e.textContent === "98.7 J").length === 2`)
	choose(b, "usage-of", "joules")
	b.until("bars of energy", `/: 98.7 J/.test(`+chartWords+`)`)
	choose(b, "usage-of", "bytes")
	choose(b, "usage-link", "wlan0")
	choose(b, "usage-period", "month")
	b.until("bars of a month", `/-01: 123 MB/.test(`+chartWords+`)`)
}

// everybody: each view has names for all that can be pressed, headings, and
// pictures with words; on a phone nothing needs to be scrolled sideways.
func everybody(t *testing.T, b *browser) {
	b.TB = t
	controls := []string{"button", "link", "textbox", "combobox", "checkbox", "image", "MenuListPopup", "DisclosureTriangle"}
	views := within(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("nav a")].map((a) => a.textContent)`))
	for _, view := range views {
		b.do(chromedp.EmulateViewport(1280, 900))
		b.press(view)
		b.until(view+" is shown", `document.activeElement.matches("main h2") && document.title.startsWith(`+quoted(view)+`)`)
		found := b.accessible()
		b.shot(strings.ToLower(view) + "-1280")
		headings := 0
		for _, e := range found {
			if e.role == "heading" {
				headings++
			}
			if slices.Contains(controls, e.role) && e.name == "" && e.role != "MenuListPopup" {
				t.Errorf("%s: a %s without a name", view, e.role)
			}
		}
		if headings == 0 || !slices.Contains(found, named{"navigation", "Views"}) {
			t.Errorf("%s: %d headings in %v", view, headings, found)
		}
		for _, width := range []int64{360, 320} {
			b.do(chromedp.EmulateViewport(width, 700))
			b.shot(fmt.Sprintf("%s-%d", strings.ToLower(view), width))
			wide := within(b, chromedp.Evaluate[int](`document.documentElement.scrollWidth`))
			if wide > int(width) {
				t.Errorf("%s: %d pixels on a screen of %d", view, wide, width)
			}
		}
	}
	b.do(chromedp.EmulateViewport(1280, 900))
}

// cut: a subflow that is cut from the page is made anew; one whose helper is gone
// is seen to be gone.
func cut(t *testing.T, b *browser, helper *rig.Process) {
	b.TB = t
	b.press("Traffic")
	const cutPhone = `[...document.querySelectorAll("button")].map((b) => b.getAttribute("aria-label") ?? "").find((l) => /^Cut subflow \d+ by phone$/.test(l)) ?? ""`
	b.until("the phone's subflow", cutPhone)
	label := within(b, chromedp.Evaluate[string](cutPhone))
	b.press(label)
	b.says("dialog", "Cut subflow")
	if now := b.focused(); now != "Cancel" {
		t.Errorf("%q has the focus: Enter would do it", now)
	}
	b.press("Cut it")
	b.until("another subflow by the phone", `((l) => l && l !== `+quoted(label)+`)(`+cutPhone+`)`)
	b.press("Events")
	b.says(".log li", strings.ToLower(strings.TrimPrefix(label, "Cut "))+" has ended")
	b.press("Overview")
	helper.End(syscall.SIGTERM)
	b.says("#topology text", "helper, away")
	b.says("#topology desc", "helper phone is not there.")
	b.until("no link to the phone", `![...document.querySelectorAll("#topology .link")].some((l) => l.parentNode.dataset.key.includes("phone") && l.parentNode.dataset.state === "up")`)
	b.press("Events")
	b.says(".log li", "phone has gone")
}

// revoke: a device is paused and resumed, gets another name, and is trusted no longer.
func revoke(t *testing.T, b *browser) {
	b.TB = t
	b.press("Devices")
	b.press("Pause phone")
	b.says("tbody td", "paused")
	b.press("Resume phone")
	b.until("it can be paused again", `document.querySelector("[aria-label='Pause phone']") !== null`)
	b.press("Rename phone")
	b.says("dialog", "New name")
	b.do(chromedp.KeyEvent("old-phone\r"))
	b.says("tbody th", "old-phone")
	b.press("Revoke old-phone")
	b.says("dialog", "no longer trusted")
	b.press("Revoke old-phone")
	b.until("it is gone", `![...document.querySelectorAll("tbody th")].some((e) => e.textContent === "old-phone")`)
}

// TestHostilePage: a page of another origin in the same browser gets nothing from
// the API, not with the token either, and changes nothing; nor does one whose name
// was made to point here.
func TestHostilePage(t *testing.T) {
	b := newBrowser(t, map[string]any{"host-resolver-rules": "MAP evil.example 127.0.0.1"})
	w := newWorld(t)
	w.Start("server", w.Mpbond, "server", "--listen", w.freePort(), "--api", "127.0.0.1:0")
	at, err := url.Parse(w.console("server"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(at.Fragment, "token=")
	evil := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprint(rw, "<title>evil</title><body>")
	}))
	defer evil.Close()
	before := invitation(w, at.Host, token)
	b.open(evil.URL)
	// told is what a page learns of a request, or its error.
	told := func(path, options string) string {
		return within(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch(%s, %s).then(async (a) => a.type + " " + a.status + " " + await a.text(), (e) => "error")`,
			quoted("http://"+at.Host+path), options), chromedp.EvalAwaitPromise))
	}
	auth := `{ headers: { Authorization: ` + quoted("Bearer "+token) + ` } }`
	for _, c := range [][3]string{
		{"/v2/status", "{}", "error"},
		{"/v2/status", auth, "error"},
		{"/v2/status", `{ mode: "no-cors" }`, "opaque 0 "},
		{"/console.js", "{}", "error"},
		{"/console.js", `{ mode: "no-cors" }`, "error"}, // Cross-Origin-Resource-Policy, or refused
		{"/v2/invitation", `{ method: "POST", mode: "no-cors", body: "{}" }`, "opaque 0 "},
		{"/v2/invitation", `{ method: "POST", headers: { Authorization: ` + quoted("Bearer "+token) + `, "Content-Type": "application/json" }, body: "{}" }`, "error"},
	} {
		if got := told(c[0], c[1]); got != c[2] && !(c[2] == "error" && got == "opaque 0 ") {
			t.Errorf("%s %s: %q", c[0], c[1], got)
		}
	}
	if now := invitation(w, at.Host, token); now != before {
		t.Errorf("a page made the code %q: before it was %q", now, before)
	}
	b.open("http://evil.example:" + at.Port() + "/#token=" + token)
	if page := b.text("body"); !strings.Contains(page, "is not a loopback address") || strings.Contains(page, "mpbond console") {
		t.Errorf("by another name: %q", page)
	}
	b.open("http://evil.example:" + at.Port() + "/v2/status")
	if page := b.text("body"); !strings.Contains(page, "is not a loopback address") {
		t.Errorf("by another name: %q", page)
	}
	b.open(at.String()) // and it works as it should
	b.says(".whoami", "server")
	b.press("Traffic")
	b.until("no plot by app, of which a server knows none", `[...document.querySelectorAll("main option")].filter((o) => o.hidden).map((o) => o.value).join() === "apps"`)
	b.wellBehaved()
}

// invitation is the code that a server shows.
func invitation(w *world, addr, token string) (code string) {
	w.Helper()
	c := client.NewTCP(addr, token)
	defer c.Close()
	rig.Eventually(w, func() error { // it shows one soon after it has begun
		i, err := c.Invitation(w.Context())
		if err == nil && i.Code == "" {
			err = errors.New("no code is shown")
		}
		code = i.Code
		return err
	})
	return code
}
