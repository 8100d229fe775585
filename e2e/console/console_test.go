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
	"mpbond/base/porttest"
	"mpbond/e2e/rig"
)

// TestConsole uses the console as a person does, without a mouse: it enters the token, pairs a
// device, watches a transfer, cuts a link, and revokes the device.
func TestConsole(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, nil)
	w := newTestbed(t)
	helper := w.startRoles()
	for _, step := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"enter token", func(t *testing.T) { enterToken(t, w, b) }},
		{"pair", func(t *testing.T) { pairDevices(t, w, b) }},
		{"transfer", func(t *testing.T) { watchTransfer(t, w, b) }},
		{"facts", func(t *testing.T) { checkFacts(t, b) }},
		{"pictures", func(t *testing.T) { savePictures(t, b) }},
		{"policy", func(t *testing.T) { editPolicy(t, w, b) }},
		{"advice", func(t *testing.T) { checkAdvice(t, b) }},
		{"usage", func(t *testing.T) { checkUsage(t, b) }},
		{"several bonds", func(t *testing.T) { checkSeveralBonds(t, b) }},
		{"accessibility", func(t *testing.T) { checkAccessibility(t, b) }},
		{"cut", func(t *testing.T) { cutSubflow(t, b, helper) }},
		{"rename and revoke", func(t *testing.T) { revokeDevice(t, b) }},
	} {
		if !t.Run(step.name, step.f) {
			break
		}
	}
	b.TB = t
	b.checkProblems()
}

// enterToken checks that the console shows nothing without the token. With the URL from
// `mpbond console` it shows everything, and the token disappears from the address.
func enterToken(t *testing.T, w *testbed, b *browser) {
	b.TB = t
	at := w.consoleURL("primary")
	page, token, _ := strings.Cut(at, "#token=")
	b.openURL(page)
	b.waitForText("main", "mpbond console")
	b.pressByName("Token") // is empty, so this sends nothing
	b.runSteps(chromedp.KeyEvent("wrong\r"))
	b.waitForText("[role=alert]", "The token is wrong for this mpbond.")
	if said := b.elementText("body"); strings.Contains(said, "laptop") {
		t.Errorf("without the token the page shows %q", said)
	}
	b.runSteps(chromedp.KeyEvent(token + "\r"))
	b.waitForText(".whoami", "laptop · primary")
	b.openURL(at)
	b.waitForText(".whoami", "laptop · primary")
	if now := runAction(b, chromedp.Location()); strings.Contains(now, token) || now != page+"#overview" {
		t.Errorf("the address is %q, want it without the token", now)
	}
	b.waitForText("#topology desc", ": idle.")
}

// pairDevices pairs the devices: the helper's own console shows a code, as text and as a QR code,
// and the primary's console accepts it.
func pairDevices(t *testing.T, w *testbed, b *browser) {
	b.TB = t
	b.openURL(w.consoleURL("helper"))
	b.waitForText(".whoami", "phone · helper")
	b.pressByName("Devices")
	b.waitUntil("the first code", `document.querySelector("#invitation")`)
	first := b.elementText("#invitation")
	b.pressByName("Show another code")
	b.waitUntil("another code", `document.querySelector("#invitation").textContent !== `+quoteJS(first))
	b.waitUntil("a QR code", `document.querySelector(".qr img")?.naturalWidth > 0`)
	code := b.elementText("#invitation")
	b.openURL(w.consoleURL("primary"))
	b.pressByName("Devices")
	b.tabTo("Code that the other device shows")
	b.runSteps(chromedp.KeyEvent("0000-0000" + code[strings.Index(code, "@"):] + "\r"))
	b.waitForText("#pairing", "failed")
	b.waitUntil("pairing has ended", `document.querySelector("form button").textContent === "Pair"`)
	b.tabTo("Code that the other device shows")
	b.runSteps(chromedp.KeyEvent(code + "\r"))
	b.waitForText("#pairing", "phone as helper")
	b.waitForText("tbody th", "phone")
	b.pressByName("Overview")
	b.waitForText("#topology text", "phone")
	b.waitUntil("a link to the phone",
		`document.querySelector('#topology [data-key="primary laptop>helper phone"][data-state=up]')`)
}

// watchTransfer checks that each link shows what an app receives: as its width, in numbers and in
// the plots.
func watchTransfer(t *testing.T, w *testbed, b *browser) {
	b.TB = t
	b.waitUntil("all links are thin",
		`[...document.querySelectorAll("#topology .link")].every((l) => l.getAttribute("stroke-width") < 3)`)
	w.startDownload()
	for _, link := range []string{"primary laptop>helper phone", "primary laptop>server"} {
		b.waitUntil(link+" is thick",
			fmt.Sprintf(`[...document.querySelectorAll("#topology g")].some((g) => g.dataset.key?.startsWith(%s) && `+
				`g.querySelector(".link")?.getAttribute("stroke-width") > 5)`, quoteJS(link)))
	}
	b.waitUntil("no link exceeds the maximum width",
		`[...document.querySelectorAll("#topology .link")].every((l) => l.getAttribute("stroke-width") <= 16)`)
	b.waitForText("#topology .rate", "↓")
	b.waitUntil("a plot of the phone", `/phone: [\d.]+ Mbit\/s now/.test(`+chartTextScript+`)`)
	b.waitUntil("the plot has a line", `document.querySelector(".plot .line").getTotalLength() > 0`)
	b.pressByName("Traffic")
	b.waitForText("main td", "redundant")
	b.pressByName("Values as a table")
	b.waitUntil("a table of values", `document.querySelectorAll("details tbody tr").length > 0`)
	app, err := os.Executable() // the test process is the app
	if err != nil {
		t.Fatal(err)
	}
	app = filepath.Base(app)
	b.waitForText("main td", app)
	for _, c := range [][2]string{
		{"apps", "Down by app.*" + regexp.QuoteMeta(app) + `: [\d.]+ Mbit/s now`},
		{"destinations", `Down by destination.*127\.0\.0\.1: [\d.]+ Mbit/s now`},
		{"pad", "ms now"},
	} {
		chooseOption(b, "chart-2-plot", c[0])
		b.waitUntil("a plot of "+c[0], fmt.Sprintf(`new RegExp(%s).test(%s)`, quoteJS(c[1]), chartTextScript))
	}
}

// checkFacts checks that the console shows the battery, temperature and link that the helper
// reports, and the estimated radio energy of the transfer.
func checkFacts(t *testing.T, b *browser) {
	b.TB = t
	b.pressByName("Devices")
	b.waitUntil("the phone's facts", `(() => {
		const rows = [...document.querySelectorAll("[aria-labelledby=h-facts] tbody tr")];
		const row = rows.find((r) => r.firstChild.textContent === "phone");
		const cells = [...(row?.children ?? [])].map((c) => c.textContent).join("|");
		return cells.startsWith("phone|55 % |31.5 °C|cellular, ") && cells.includes("|yes, it costs money|70 %|") &&
			/ J \(cellular [^)]+\)$/.test(cells) })()`)
	b.waitUntil("a battery meter at 55 %", `document.querySelector("[aria-labelledby=h-facts] meter").value === 55`)
	b.pressByName("Overview")
	b.waitForText("#topology text", "55 %")
	b.waitForText("#topology desc", "Battery of helper phone: 55 %.")
}

// savePictures saves the device picture and a plot in each format, and checks that the files can be
// parsed.
func savePictures(t *testing.T, b *browser) {
	b.TB = t
	dir := b.allowDownloads()
	b.pressByName("Overview")
	for _, picture := range []string{"topology", "devices"} {
		group := map[string]string{"topology": "This picture as a file", "devices": "This plot as a file"}[picture]
		for _, format := range []string{"SVG", "PNG", "CSV"} {
			b.waitUntil("the button "+format, fmt.Sprintf(`(() => {
				const e = [...document.querySelectorAll('[role=group][aria-label=%s] button')]
					.find((e) => e.textContent === %s);
				e?.click();
				return e })()`, quoteJS(group), quoteJS(format)))
			body := b.waitForFile(filepath.Join(dir, "mpbond-"+picture+"."+strings.ToLower(format)))
			switch format {
			case "PNG":
				if img, err := png.Decode(bytes.NewReader(body)); err != nil || img.Bounds().Dx() < 700 {
					t.Errorf("%s: %v", picture, err)
				}
			case "SVG":
				err := xml.Unmarshal(body, new(struct{}))
				if err != nil || !bytes.Contains(body, []byte(">phone<")) || !bytes.Contains(body, []byte(`fill="rgb(`)) {
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

// chooseOption sets a select element to a value.
func chooseOption(b *browser, id, value string) {
	b.Helper()
	b.waitUntil("choosing "+value, fmt.Sprintf(`(() => { const s = document.getElementById(%s); s.value = %s; `+
		`s.dispatchEvent(new Event("change")); return s.value })()`, quoteJS(id), quoteJS(value)))
}

// editPolicy checks that a policy with a mistake is refused, with the line of the mistake, and that
// the corrected policy applies at once.
func editPolicy(t *testing.T, w *testbed, b *browser) {
	b.TB = t
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	if code := w.fetchStatus(other.URL); code != http.StatusOK {
		t.Fatalf("status before the policy: %d", code)
	}
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	b.pressByName("Policy")
	b.waitUntil("the current policy", `document.querySelector("#policy-text")?.readOnly === false`)
	b.tabTo("Rules for apps and destinations, and device tables, as TOML")
	b.runSteps(chromedp.KeyEvent("[[rule]]\rname = \"other\"\rport = [" + port + "]\rmod = \"block\"\r"))
	b.waitForText("#policy-verdict", "did you mean mode?")
	b.pressByName("Put in force")
	b.waitUntil("the policy is refused", `document.querySelector("#policy-text").getAttribute("aria-invalid") === "true"`)
	if code := w.fetchStatus(other.URL); code != http.StatusOK {
		t.Errorf("status with an invalid policy: %d", code)
	}
	b.pressByName("Go to line 4") // selects the line
	b.runSteps(chromedp.KeyEvent("mode = \"block\""))
	b.waitForText("#policy-verdict", "Usable: 1 rule.")
	b.pressByName("Host")
	b.runSteps(chromedp.KeyEvent("example.org\t"))
	b.runSteps(chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), chromedp.KeyEvent(port+"\r"))
	b.waitForText("#flow-answer", "Rule “other”: block.")
	b.waitForText("#flow-answer", "not in force")
	b.pressByName("Put in force")
	b.waitForText("#policy-verdict", "In force: 1 rule.")
	b.waitForText("main tbody th", "other")
	if code := w.fetchStatus(other.URL); code != http.StatusForbidden {
		t.Errorf("status with a rule that blocks: %d", code)
	}
	b.waitUntil("the rule has a count",
		`[...document.querySelectorAll("main tbody td.n")].some((e) => Number(e.textContent) > 0)`)
	// If mpbond cannot write the file, as in a service, the page must say so beforehand.
	const button = `[...document.querySelectorAll("main button")].find((e) => e.textContent === "Put in force")`
	b.runSteps(chromedp.Evaluate[chromedp.Void](`window.realFetch = window.fetch;
		window.fetch = async (...a) => {
			const r = await realFetch(...a);
			return a[0] === "/v2/policy" ? new Response(JSON.stringify({ ...await r.json(), read_only: true })) : r;
		};
		undefined`))
	b.waitForText("main p", "change it by hand")
	b.waitUntil("the button is disabled", button+`.disabled`)
	b.runSteps(chromedp.Evaluate[chromedp.Void](`window.fetch = realFetch; undefined`))
	b.waitUntil("the button is enabled", button+`.disabled === false`)
}

// checkSeveralBonds checks that a device with two bonds at once, as during a doctor run, is shown
// as one device with one link, and that no element is left over.
func checkSeveralBonds(t *testing.T, b *browser) {
	b.TB = t
	const path = `{ id: 1, kind: "direct", state: "up", rx_rate_bps: 4e6, tx_rate_bps: 1e6 }, { id: 2, kind: "helped", ` +
		`device: "phone", state: "up", rx_rate_bps: 1e6, tx_rate_bps: 1e6 }`
	got := runAction(b, chromedp.Evaluate[string](`(async () => {
		const { model } = await import("/topology.js"), { keyed } = await import("/dom.js");
		const bond = { peer: "laptop", subflows: [`+path+`] };
		const joining = { peer: "laptop", subflows: [{ ...bond.subflows[0], state: "joining" }] };
		const m = model({ role: "server", name: "home", devices: [], bonds: [bond, joining, bond] });
		const parent = document.createElement("div"), make = () => document.createElement("p");
		const count = (...items) => {
			keyed(parent, items, (i) => i, make);
			return [...parent.children].map((e) => e.dataset.key).join("");
		};
		return JSON.stringify([m.links.map((l) => [l.id, l.state, l.up, l.down, l.subflows.length]),
			bond.subflows.length, m.nodes.length, count("a", "a", "b"), count("a", "a", "b"), count("b", "a")]);
	})()`, chromedp.EvalAwaitPromise))
	const want = `[[["primary laptop>server home","up",12000000,3000000,3],` +
		`["primary laptop>helper phone","up",2000000,2000000,2],` +
		`["helper phone>server home","up",2000000,2000000,2]],2,3,"aab","aab","ba"]`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// checkAdvice checks that the links, the advice for each usual transfer and past forecasts are shown.
func checkAdvice(t *testing.T, b *browser) {
	b.TB = t
	b.pressByName("Advice")
	for _, text := range []string{"Message, 1.00 KB up", "Song, 8.00 MB down", "Video, 2.00 MB down each 5 s"} {
		b.waitForText("main tbody th", text)
	}
	b.waitUntil("the links", `[...document.querySelectorAll("main tbody th")].some((e) => e.textContent === "laptop")`)
	b.waitForText("main tbody td", "subflows of tier primary suffice")
	b.waitUntil("past forecasts, or that there are none", `[...document.querySelectorAll("main p")].some((e) =>
		/The median error of the last|No answer of more than 32 KB/.test(e.textContent))`)
}

// checkUsage checks that counted bytes are shown as numbers and as a chart.
func checkUsage(t *testing.T, b *browser) {
	b.TB = t
	b.pressByName("Usage")
	b.waitUntil("months and days",
		`[...document.querySelectorAll("main tbody td")].filter((e) => e.textContent === "123 MB").length === 2`)
	b.waitForText("main tbody td", "wlan0")
	b.waitUntil("bars", `document.querySelector(".plot .bar").getBBox().height > 0 && `+
		`/: 123 MB/.test(`+chartTextScript+`)`)
	b.waitUntil("radio energy of a day and a month",
		`[...document.querySelectorAll("main tbody td")].filter((e) => e.textContent === "98.7 J").length === 2`)
	chooseOption(b, "usage-of", "joules")
	b.waitUntil("bars of energy", `/: 98.7 J/.test(`+chartTextScript+`)`)
	chooseOption(b, "usage-of", "bytes")
	chooseOption(b, "usage-link", "wlan0")
	chooseOption(b, "usage-period", "month")
	b.waitUntil("bars of a month", `/-01: 123 MB/.test(`+chartTextScript+`)`)
}

// checkAccessibility checks that each view has headings, that all controls have names, and that all
// pictures have descriptions. On a phone, no view may need sideways scrolling.
func checkAccessibility(t *testing.T, b *browser) {
	b.TB = t
	controls := []string{"button", "link", "textbox", "combobox", "checkbox", "image",
		"MenuListPopup", "DisclosureTriangle"}
	views := runAction(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("nav a")].map((a) => a.textContent)`))
	for _, view := range views {
		b.runSteps(chromedp.EmulateViewport(1280, 900))
		b.pressByName(view)
		b.waitUntil(view+" is shown", `document.activeElement.matches("main h2") && `+
			`document.title.startsWith(`+quoteJS(view)+`)`)
		found := b.listAccessible()
		b.saveScreenshot(strings.ToLower(view) + "-1280")
		headings := 0
		for _, e := range found {
			if e.role == "heading" {
				headings++
			}
			if slices.Contains(controls, e.role) && e.name == "" && e.role != "MenuListPopup" {
				t.Errorf("%s: a %s without a name", view, e.role)
			}
		}
		if headings == 0 || !slices.Contains(found, accessibleNode{"navigation", "Views"}) {
			t.Errorf("%s: %d headings in %v", view, headings, found)
		}
		for _, width := range []int64{360, 320} {
			b.runSteps(chromedp.EmulateViewport(width, 700))
			b.saveScreenshot(fmt.Sprintf("%s-%d", strings.ToLower(view), width))
			wide := runAction(b, chromedp.Evaluate[int](`document.documentElement.scrollWidth`))
			if wide > int(width) {
				t.Errorf("%s: %d pixels wide on a screen of %d", view, wide, width)
			}
		}
	}
	b.runSteps(chromedp.EmulateViewport(1280, 900))
}

// cutSubflow cuts a subflow from the page and checks that a new one replaces it. Then it ends the
// helper and checks that the page shows it as away.
func cutSubflow(t *testing.T, b *browser, helper *rig.Process) {
	b.TB = t
	b.pressByName("Traffic")
	const cutPhone = `[...document.querySelectorAll("button")].map((b) => b.getAttribute("aria-label") ?? "")` +
		`.find((l) => /^Cut subflow \d+ by phone$/.test(l)) ?? ""`
	b.waitUntil("the phone's subflow", cutPhone)
	label := runAction(b, chromedp.Evaluate[string](cutPhone))
	b.pressByName(label)
	b.waitForText("dialog", "Cut subflow")
	if now := b.focusedName(); now != "Cancel" {
		t.Errorf("%q has the focus, want Cancel: Enter must not confirm", now)
	}
	b.pressByName("Cut it")
	b.waitUntil("a new subflow by the phone", `((l) => l && l !== `+quoteJS(label)+`)(`+cutPhone+`)`)
	b.pressByName("Events")
	b.waitForText(".log li", strings.ToLower(strings.TrimPrefix(label, "Cut "))+" ended")
	b.pressByName("Overview")
	helper.End(syscall.SIGTERM)
	b.waitForText("#topology text", "helper, away")
	b.waitForText("#topology desc", "helper phone is away.")
	b.waitUntil("no link to the phone",
		`![...document.querySelectorAll("#topology .link")].some((l) => l.parentNode.dataset.key.includes("phone") && `+
			`l.parentNode.dataset.state === "up")`)
	b.pressByName("Events")
	b.waitForText(".log li", "phone is away")
}

// revokeDevice pauses, resumes, renames and revokes a device.
func revokeDevice(t *testing.T, b *browser) {
	b.TB = t
	b.pressByName("Devices")
	b.pressByName("Pause phone")
	b.waitForText("tbody td", "paused")
	b.pressByName("Resume phone")
	b.waitUntil("the phone can be paused again", `document.querySelector("[aria-label='Pause phone']") !== null`)
	b.pressByName("Rename phone")
	b.waitForText("dialog", "New name")
	b.runSteps(chromedp.KeyEvent("old-phone\r"))
	b.waitForText("tbody th", "old-phone")
	b.pressByName("Revoke old-phone")
	b.waitForText("dialog", "no longer trusted")
	b.pressByName("Revoke old-phone")
	b.waitUntil("old-phone is gone",
		`![...document.querySelectorAll("tbody th")].some((e) => e.textContent === "old-phone")`)
}

// TestHostilePage checks that a page of another origin in the same browser can neither read from
// the API, even with the token, nor change anything. The same goes for a page whose host name
// resolves to the loopback address.
func TestHostilePage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, map[string]any{"host-resolver-rules": "MAP evil.example 127.0.0.1"})
	w := newTestbed(t)
	w.Start("server", w.Mpbond, "server", "--listen", porttest.FreeAddress(w), "--api", "127.0.0.1:0")
	at, err := url.Parse(w.consoleURL("server"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(at.Fragment, "token=")
	evil := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprint(rw, "<title>evil</title><body>")
	}))
	defer evil.Close()
	before := waitForInvitation(w, at.Host, token)
	b.openURL(evil.URL)
	// fetchResult returns the response that the page can read, or "error".
	fetchResult := func(path, options string) string {
		return runAction(b, chromedp.Evaluate[string](fmt.Sprintf(`fetch(%s, %s).then(
			async (a) => a.type + " " + a.status + " " + await a.text(), (e) => "error")`,
			quoteJS("http://"+at.Host+path), options), chromedp.EvalAwaitPromise))
	}
	auth := `{ headers: { Authorization: ` + quoteJS("Bearer "+token) + ` } }`
	for _, c := range [][3]string{
		{"/v2/status", "{}", "error"},
		{"/v2/status", auth, "error"},
		{"/v2/status", `{ mode: "no-cors" }`, "opaque 0 "},
		{"/console.js", "{}", "error"},
		{"/console.js", `{ mode: "no-cors" }`, "error"}, // Cross-Origin-Resource-Policy, or blocked
		{"/v2/invitation", `{ method: "POST", mode: "no-cors", body: "{}" }`, "opaque 0 "},
		{"/v2/invitation", `{ method: "POST", headers: { Authorization: ` + quoteJS("Bearer "+token) +
			`, "Content-Type": "application/json" }, body: "{}" }`, "error"},
	} {
		if got := fetchResult(c[0], c[1]); got != c[2] && !(c[2] == "error" && got == "opaque 0 ") {
			t.Errorf("%s %s: %q", c[0], c[1], got)
		}
	}
	if now := waitForInvitation(w, at.Host, token); now != before {
		t.Errorf("the page changed the code from %q to %q", now, before)
	}
	b.openURL("http://evil.example:" + at.Port() + "/#token=" + token)
	page := b.elementText("body")
	if !strings.Contains(page, "is not a loopback address") || strings.Contains(page, "mpbond console") {
		t.Errorf("the console by another host name shows %q", page)
	}
	b.openURL("http://evil.example:" + at.Port() + "/v2/status")
	if page := b.elementText("body"); !strings.Contains(page, "is not a loopback address") {
		t.Errorf("the API by another host name answers %q", page)
	}
	b.openURL(at.String()) // the right address still works
	b.waitForText(".whoami", "server")
	b.pressByName("Traffic")
	b.waitUntil("no plot by app, since a server knows no apps",
		`[...document.querySelectorAll("main option")].filter((o) => o.hidden).map((o) => o.value).join() === "apps"`)
	b.checkProblems()
}

// waitForInvitation waits until a server shows a pairing code and returns it.
func waitForInvitation(w *testbed, addr, token string) (code string) {
	w.Helper()
	c := client.NewTCP(addr, token)
	defer c.Close()
	rig.Eventually(w, func() error { // the server shows one soon after its start
		i, err := c.Invitation(w.Context())
		if err == nil && i.Code == "" {
			err = errors.New("no code is shown")
		}
		code = i.Code
		return err
	})
	return code
}
