// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"mpbond/base/porttest"
)

// scene is a status that the page shows instead of mpbond's own.
type scene struct {
	name   string
	status map[string]any
}

type fields = map[string]any

func directSubflow(id int, down, up float64) fields {
	return fields{"id": id, "kind": "direct", "device": "laptop", "state": "up",
		"rx_rate_bps": down, "tx_rate_bps": up, "rx_bytes": 1e6, "tx_bytes": 1e5}
}

func helpedSubflow(id int, by string, down, up float64) fields {
	return fields{"id": id, "kind": "helped", "device": by, "state": "up",
		"rx_rate_bps": down, "tx_rate_bps": up, "rx_bytes": 1e6, "tx_bytes": 1e5}
}

func newDevice(name string, more fields, roles ...string) fields {
	d := fields{"name": name, "id": "K7QF-3M2A-XT5B-" + name, "roles": roles, "online": true, "pipes": 1, "subflows": 1,
		"rx_bytes": 1e6, "tx_bytes": 1e5, "rx_rate_bps": 1e6, "tx_rate_bps": 1e5}
	for k, v := range more {
		d[k] = v
	}
	return d
}

func newStatus(role, name string, devices, bonds []fields) fields {
	return fields{"role": role, "name": name, "id": "AAAA-BBBB-CCCC-DDDD", "version": "x",
		"uptime_seconds": 4000, "memory_bytes": 3e7,
		"devices": append([]fields{newDevice(name, fields{"self": true}, role)}, devices...),
		"pipes":   []fields{}, "bonds": bonds}
}

func newBond(peer string, paths ...fields) fields {
	return fields{"id": "b-" + peer, "peer": peer, "scheduler": "auto",
		"streams": 2, "streams_total": 9, "subflows": paths}
}

var battery = fields{"facts": fields{"battery_percent": 55, "charging": false,
	"link": "cellular", "metered": true, "signal_percent": 70}}

// scenes are those in which links and labels come close to each other.
var scenes = []scene{
	{"two-primaries", newStatus("server", "home",
		[]fields{newDevice("laptop", nil, "primary"), newDevice("desktop", nil, "primary")},
		[]fields{
			newBond("laptop", directSubflow(1, 3e5, 8.1e6),
				helpedSubflow(2, "phone", 1e5, 4.7e6), helpedSubflow(3, "tablet", 1e5, 9.9e6)),
			newBond("desktop", directSubflow(1, 2e6, 4.4e7), helpedSubflow(2, "old-phone", 2e5, 1.2e7)),
		})},
	{"two-primaries-one-helper", newStatus("server", "home",
		[]fields{newDevice("laptop", nil, "primary"), newDevice("desktop", nil, "primary")},
		[]fields{
			newBond("laptop", directSubflow(1, 3e5, 8.1e6), helpedSubflow(2, "phone", 1e5, 4.7e6)),
			newBond("desktop", directSubflow(1, 2e6, 4.4e7), helpedSubflow(2, "phone", 2e5, 1.2e7)),
		})},
	{"three-helpers", newStatus("primary", "laptop",
		[]fields{
			newDevice("home", nil, "server"), newDevice("phone", battery, "helper"),
			newDevice("tablet", nil, "helper"), newDevice("spare-router-in-hall", nil, "helper"),
		},
		[]fields{newBond("home", directSubflow(1, 8.1e6, 3e5),
			helpedSubflow(2, "phone", 4.7e6, 1e5), helpedSubflow(3, "tablet", 9.9e6, 1e6),
			helpedSubflow(4, "spare-router-in-hall", 1.2e7, 2e5))})},
	{"one-helper", newStatus("primary", "laptop",
		[]fields{newDevice("home", nil, "server"), newDevice("phone", battery, "helper")},
		[]fields{newBond("home", directSubflow(1, 8.1e6, 3e5), helpedSubflow(2, "phone", 4.7e6, 1e5))})},
	{"six-helpers", newStatus("primary", "laptop",
		[]fields{
			newDevice("home", nil, "server"), newDevice("a-phone", battery, "helper"),
			newDevice("b-phone", battery, "helper"), newDevice("c-phone", nil, "helper"),
			newDevice("d-phone", nil, "helper"), newDevice("e-phone", fields{"online": false}, "helper"),
			newDevice("f-phone", nil, "helper"),
		},
		[]fields{newBond("home", directSubflow(1, 8.1e6, 3e5),
			helpedSubflow(2, "a-phone", 4.7e6, 1e5), helpedSubflow(3, "b-phone", 9.9e6, 1e6),
			helpedSubflow(4, "c-phone", 1.2e7, 2e5), helpedSubflow(5, "d-phone", 0, 0),
			helpedSubflow(6, "f-phone", 1e7, 1e7))})},
}

// showStatus makes the page show a status in every later poll.
func (b *browser) showStatus(status fields) {
	b.Helper()
	text, err := json.Marshal(status)
	if err != nil {
		b.Fatal(err)
	}
	b.runSteps(chromedp.Evaluate[chromedp.Void](`window.realFetch ??= window.fetch; window.shown = ` + string(text) + `;
		window.answer = (text) => new Response(text, { headers: { "Content-Type": "application/json" } });
		window.fetch = async (...a) => String(a[0]).startsWith("/v2/status") ? answer(JSON.stringify(window.shown)) :
			String(a[0]) === "/v2/subflows" ? answer("[]") : realFetch(...a); undefined`))
}

// saveScreenshot saves a picture of the page in the directory MPBOND_TEST_SHOTS, if that is set.
func (b *browser) saveScreenshot(name string) {
	b.Helper()
	dir := os.Getenv("MPBOND_TEST_SHOTS")
	if dir == "" {
		return
	}
	png := runAction(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		b.Fatal(err)
	}
}

// collisionsScript lists faults of the device picture: links that run through a node other than
// their ends, and labels that cover another label, a node or a node's name.
const collisionsScript = `(() => {
	const svg = document.getElementById("topology"), out = [];
	const [links, nodes, labels] = [...svg.querySelectorAll(":scope > g")].map((g) => [...g.children]);
	const rect = (e) => {
		const r = e.getBoundingClientRect();
		return { l: r.left + 1, r: r.right - 1, t: r.top + 1, b: r.bottom - 1 };
	};
	const meet = (a, b) => a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b;
	const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width, edge = svg.getBoundingClientRect();
	const at = new Map(nodes.map((g) => {
		const [, x, y] = g.getAttribute("transform").match(/translate\(([-\d.]+) ([-\d.]+)\)/).map(Number);
		return [g.dataset.key, { x, y }];
	}));
	for (const g of links) {
		const line = g.querySelector("line");
		const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map((k) => Number(line.getAttribute(k)));
		const wide = Number(line.getAttribute("stroke-width")) / 2;
		for (const [id, p] of at) {
			if (g.dataset.key.split(">").includes(id)) continue;
			const along = ((p.x - x1) * (x2 - x1) + (p.y - y1) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2);
			const t = Math.max(0, Math.min(1, along));
			const d = Math.hypot(p.x - x1 - t * (x2 - x1), p.y - y1 - t * (y2 - y1)) - wide;
			if (d < 27) out.push(g.dataset.key + " runs through " + id);
		}
	}
	const namesOf = (g) => [...g.querySelectorAll("text")].map((e) => [g.dataset.key + " " + e.textContent, e]);
	const texts = [...labels.map((g) => ["label of " + g.dataset.key, g.querySelector("text")]),
		...nodes.flatMap(namesOf)].filter(([, e]) => e.textContent);
	for (const [i, [who, e]] of texts.entries()) {
		const r = rect(e);
		if (r.l < edge.left || r.r > edge.right || r.t < edge.top || r.b > edge.bottom) out.push(who + " is outside");
		for (const [other, o] of texts.slice(i + 1))
			if (e.parentNode !== o.parentNode && meet(r, rect(o))) out.push(who + " covers " + other);
		for (const g of nodes)
			if (g !== e.parentNode && meet(r, rect(g.querySelector("circle")))) out.push(who + " covers " + g.dataset.key);
	}
	return out;
})()`

// positionsScript returns the positions of the picture's nodes.
const positionsScript = `[...document.querySelectorAll("#topology g[transform]")]` +
	`.map((g) => g.dataset.key + " " + g.getAttribute("transform")).sort().join("\n")`

// TestPictures checks the device picture on desktop and phone screens. No link may run through a
// node, and no label may cover anything. Nodes must not move when rates or the order of devices
// change. On a phone, controls must be large enough, and Devices must fit three screens.
func TestPictures(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, nil)
	w := newTestbed(t)
	w.Start("server", w.Mpbond, "server", "--listen", porttest.FreeAddress(w), "--api", "127.0.0.1:0")
	at := w.consoleURL("server")
	const tall = 700
	b.openURL(at)
	b.waitForText(".whoami", "server")
	// draw shows a status in a new picture, or changes it, without waiting for the page to poll.
	draw := func(status fields, change string) {
		b.runSteps(chromedp.Evaluate[chromedp.Void](`(async () => { const { topology } = await import("/topology.js");
			if (`+ifElse(change == "", "true", "false")+`) {
				window.status_ = `+marshalJSON(t, status)+`;
				document.getElementById("topology")?.removeAttribute("id");
				window.figure = topology();
				document.querySelector("main").replaceChildren(figure); }
			`+change+`; figure.update(status_) })()`, chromedp.EvalAwaitPromise))
	}
	check := func(what string) {
		t.Helper()
		if found := runAction(b, chromedp.Evaluate[[]string](collisionsScript)); len(found) > 0 {
			t.Errorf("%s: %s", what, strings.Join(found, "; "))
		}
	}
	for _, width := range []int64{1280, 360} {
		b.runSteps(chromedp.EmulateViewport(width, tall))
		for _, p := range scenes {
			what := fmt.Sprintf("%s-%d", p.name, width)
			draw(p.status, "")
			b.saveScreenshot(what)
			check(what)
			before := runAction(b, chromedp.Evaluate[string](positionsScript))
			draw(p.status, `for (const x of status_.bonds)
					for (const p of x.subflows) { p.rx_rate_bps *= 1.7; p.tx_rate_bps /= 3; }
				status_.bonds.reverse(); for (const x of status_.bonds) x.subflows.reverse();
				status_.devices.push(...status_.devices.splice(1, 1))`)
			if now := runAction(b, chromedp.Evaluate[string](positionsScript)); now != before {
				t.Errorf("%s: nodes move from\n%s\nto\n%s", what, before, now)
			}
			check(what + ", later")
			draw(p.status, `for (const x of status_.bonds) x.subflows.at(-1).state = "silent"`)
			if now := runAction(b, chromedp.Evaluate[string](positionsScript)); now != before {
				t.Errorf("%s: nodes move when a link is cut from\n%s\nto\n%s", what, before, now)
			}
			check(what + ", cut")
		}
	}
	b.openURL(at)
	b.waitForText(".whoami", "server")
	b.showStatus(scenes[2].status) // the screen is still a phone's
	b.waitForText(".whoami", "laptop")
	for _, view := range runAction(b,
		chromedp.Evaluate[[]string](`[...document.querySelectorAll("nav a")].map((a) => a.textContent)`)) {
		b.pressByName(view)
		small := runAction(b, chromedp.Evaluate[[]string](`
			[...document.querySelectorAll("button, select, nav a, summary, input")]
			.filter((e) => e.offsetParent && Math.min(e.offsetWidth, e.offsetHeight) < 44)
			.map((e) => (e.textContent || e.id) + " " + e.offsetWidth + "x" + e.offsetHeight)`))
		if len(small) > 0 {
			t.Errorf("%s: too small to touch: %s", view, strings.Join(small, "; "))
		}
		if view == "Devices" {
			b.waitForText("main th", "phone")
			b.saveScreenshot("devices-360")
			if high := runAction(b, chromedp.Evaluate[int](`document.documentElement.scrollHeight`)); high > 3*tall {
				t.Errorf("Devices is %d pixels high, %.1f screens", high, float64(high)/tall)
			}
		}
	}
	b.checkProblems()
}

// TestAlarms checks that faults are shown with the name of the device, and that states that a user
// chose are not shown as faults.
func TestAlarms(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, nil)
	w := newTestbed(t)
	w.Start("server", w.Mpbond, "server", "--listen", porttest.FreeAddress(w), "--api", "127.0.0.1:0")
	b.openURL(w.consoleURL("server"))
	b.waitForText(".whoami", "server")
	down := func(device, text string, more fields) fields {
		p := fields{"id": 0, "device": device, "kind": "", "state": "down", "last_error": text}
		maps.Copy(p, more)
		return p
	}
	const noWay = "phone has no way to home at 192.0.2.1:7600: no answer"
	status := newStatus("primary", "laptop",
		[]fields{
			newDevice("phone", nil, "helper"),
			newDevice("tablet", fields{"paused": true, "suspended": "paused by its owner"}, "helper"),
			newDevice("spare", fields{"facts": fields{"refuses": "its battery is at 12 %"}}, "helper"),
			newDevice("old", nil, "helper"),
		},
		[]fields{newBond("home", directSubflow(1, 1, 1),
			down("phone", noWay+" (x)", fields{"trouble": fields{"text": noWay, "hint": "x"}}),
			down("tablet", "suspended: paused by its owner", nil),
			down("spare", "refused: low", nil),
			down("old", "refused: this device is paused there", nil),
			down("laptop", "a second one", nil))})
	got := runAction(b, chromedp.Evaluate[[]string](`import("/overview.js").then(({ alarms }) => alarms(`+
		marshalJSON(t, status)+`).map((a) => [a.who, a.what, a.hint].join("|")))`, chromedp.EvalAwaitPromise))
	want := []string{"phone|" + noWay + "|x"}
	if !slices.Equal(got, want) {
		t.Errorf("alarms %q, want %q", got, want)
	}
}

// TestFleetCard checks what the console says of the servers of a fleet.
func TestFleetCard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, nil)
	w := newTestbed(t)
	w.Start("server", w.Mpbond, "server", "--listen", porttest.FreeAddress(w), "--api", "127.0.0.1:0")
	b.openURL(w.consoleURL("server"))
	b.waitForText(".whoami", "server")
	server := func(name string, more fields) fields {
		s := fields{"name": name, "id": "X", "addresses": []string{name + ":7600"}, "listed": true, "running": true}
		maps.Copy(s, more)
		return s
	}
	status := fields{"fleet": fields{"name": "acme", "server": "eu1", "engine": "nats://n1", "age_seconds": 2,
		"devices": 7, "waiting": 3, "problem": "the list expired", "servers": []fields{
			server("eu1", fields{"bonds": 5, "streams": 40, "rate_bps": 5e6, "cpu": 0.5, "memory_bytes": 50 << 20}),
			server("eu2", fields{"draining": true}), server("us1", fields{"running": false}),
			server("new", fields{"listed": false})}}}
	got := runAction(b, chromedp.Evaluate[[]string](`import("/fleet.js").then(({ fleetCard }) => {
		const card = fleetCard();
		card.update({});
		const before = card.hidden;
		card.update(`+marshalJSON(t, status)+`);
		return [String(before), String(card.hidden), ...[...card.querySelectorAll("h2, p:not([hidden]), tbody tr")]
			.map((e) => [...e.querySelectorAll("td, th")].map((c) => c.textContent).join("|") || e.textContent)];
	})`, chromedp.EvalAwaitPromise))
	want := []string{"true", "false", "Fleet acme", "the list expired",
		"This is the server eu1: 7 devices are known, as of 2 s ago. 3 reports wait for the engine.",
		"eu1||runs|5|40|5.00 Mbit/s||50.0 MB|eu1:7600", "eu2||drains|0|0|0 kbit/s||0 B|eu2:7600",
		"us1||silent||||||us1:7600", "new||not listed|0|0|0 kbit/s||0 B|new:7600"}
	if !slices.Equal(got, want) {
		t.Errorf("the card says\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func ifElse(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func marshalJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
