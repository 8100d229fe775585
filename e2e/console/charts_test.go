// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"mpbond/base/porttest"
)

// chartTextScript returns the title and description of the page's first chart, which screen readers
// announce.
const chartTextScript = `[...document.querySelectorAll(".plot svg > title, .plot svg > desc")]` +
	`.slice(0, 2).map((e) => e.textContent).join(". ")`

// newPlot returns an answer to /v2/plots/NAME: one value a second, from a fixed time on.
func newPlot(title, unit string, series ...fields) fields {
	n := 0
	for _, s := range series {
		n = len(s["values"].([]any))
	}
	times := []string{}
	for i := range n {
		times = append(times, time.Unix(1e9+int64(i), 0).UTC().Format(time.RFC3339))
	}
	if series == nil {
		series = []fields{}
	}
	return fields{"name": "x", "title": title, "unit": unit, "times": times, "series": series}
}

// newSeries returns one line of a plot.
func newSeries(name string, values ...any) fields { return fields{"name": name, "values": values} }

// newLines returns n lines of 61 values, each line higher than the one before. The second line has
// no values in its first half.
func newLines(n int) (all []fields) {
	for i := range n {
		values := make([]any, 61)
		for k := range values {
			if i != 1 || k >= 30 {
				values[k] = float64(i+1) * 1e6
			}
		}
		all = append(all, newSeries(fmt.Sprintf("device %d", i), values...))
	}
	return all
}

// openChartPage opens the console and replaces its view by a place for charts.
func openChartPage(t *testing.T) *browser {
	b := newBrowser(t, nil)
	w := newTestbed(t)
	w.Start("server", w.Mpbond, "server", "--listen", porttest.FreeAddress(w), "--api", "127.0.0.1:0")
	b.openURL(w.consoleURL("server"))
	b.waitForText(".whoami", "server")
	b.runSteps(chromedp.Evaluate[chromedp.Void](`(async () => {
		window.plot = await import("/plot.js"), window.usage = await import("/usage.js");
		window.advice = await import("/advice.js");
		document.querySelector("header").hidden = true;
		window.draw = (c) => {
			const svg = plot.canvas("test", "nothing"), box = document.createElement("div");
			box.className = "card";
			box.style.width = c.width + 34 + "px";
			box.append(svg);
			document.querySelector("main").replaceChildren(box);
			svg.show(() => c);
			return svg;
		};
	})()`, chromedp.EvalAwaitPromise))
	return b
}

// drawChart has the page draw a chart. It returns the chart's title, description and labels, one a
// line.
func (b *browser) drawChart(function string, chart any, more ...any) string {
	b.Helper()
	args := marshalJSON(b, chart)
	for _, m := range more {
		args += ", " + marshalJSON(b, m)
	}
	return runAction(b, chromedp.Evaluate[string](`[...draw(plot.`+function+`(`+args+`)).`+
		`querySelectorAll("title, desc, text")].map((e) => e.textContent).join("\n") + "\n"`))
}

// TestCharts checks the charts of the page.
func TestCharts(t *testing.T) {
	t.Parallel()
	b := openChartPage(t)
	for _, step := range []struct {
		name string
		f    func(*testing.T, *browser)
	}{
		{"lines", checkLineCharts},
		{"bars", checkBarCharts},
		{"best other", checkBestOther},
		{"width", checkChartWidth},
		{"schemes", checkChartsInTheDark},
	} {
		t.Run(step.name, func(t *testing.T) { step.f(t, b) })
	}
	b.TB = t
	b.checkProblems()
}

// checkLineCharts checks the scales, gaps, names and descriptions of charts over time. At any width,
// no label may cover another or leave the picture.
func checkLineCharts(t *testing.T, b *browser) {
	b.TB = t
	empty := newPlot("Down by device", "bit/s")
	gone := newPlot("x", "ms", newSeries("a", nil, nil), newSeries("b", 20, nil))
	hostile := newLines(3)
	hostile[0]["name"] = "<script>alert(1)</script> \u202e& a name without end"
	cases := []struct {
		name string
		plot fields
		span int
		want []string
		not  string
	}{
		{"nothing", empty, 60,
			[]string{"Down by device\nNothing to show yet.\n", "Down by device, kbit/s\n", "\n1\n"}, ""},
		{"gaps", newPlot("Down by device", "bit/s", newLines(3)...), 60,
			[]string{"device 2: 3 Mbit/s now, at most 3 Mbit/s.", "Down by device, Mbit/s",
				"\n0\n1\n2\n3\n", "−60 s\n−45 s\n−30 s\n−15 s\nnow\n", "\ndevice 1\n"}, "more"},
		{"gone", gone, 60,
			[]string{"a: not there now, at most nothing. b: not there now, at most 20 ms.", "\n20\n"}, ""},
		{"hostile", newPlot("x", "bit/s", hostile...), 60,
			[]string{"<script>alert(1)</script> \ufffd& a name without end: 1 Mbit/s now",
				"\n<script>alert(1)</…\n"}, ""},
		{"many", newPlot("Down", "bit/s", newLines(11)...), 3600,
			[]string{"\nand 3 more with less\n", "\ndevice 10\n", "device 0: 1 Mbit/s now",
				"−60 min\n−45 min"}, "\ndevice 0\n"},
		{"slow", newPlot("x", "bit/s", newSeries("a", 0, 12)), 60,
			[]string{"0.012 kbit/s now", "x, kbit/s", "\n0.012\n"}, ""},
		{"kbit/s", newPlot("x", "bit/s", newSeries("a", 0, 73e3)), 60, []string{"\n80\n"}, ""},
		{"Gbit/s", newPlot("x", "bit/s", newSeries("a", 0, 4.2e9)), 60, []string{"x, Gbit/s", "\n5\n"}, ""},
		{"long", newPlot("Predicted delivery time (PAD) by subflow", "ms", newSeries("a", 0, 41)), 60,
			[]string{"Predicted delivery time (PAD) by subflow, ms\n"}, ""},
		{"ms", newPlot("x", "ms", newSeries("a", 0, 41)), 60, []string{"x, ms", "\n50\n", "41 ms now"}, ""},
		{"s", newPlot("x", "ms", newSeries("a", 0, 2600)), 60, []string{"x, s", "\n3\n", "2.6 s now"}, ""},
	}
	for _, width := range []int{240, 340, 760, 1200} {
		b.runSteps(chromedp.EmulateViewport(int64(width)+80, 400))
		for _, c := range cases {
			got := b.drawChart("lineChart", c.plot, c.span, width)
			what := fmt.Sprintf("%s, %d wide", c.name, width)
			b.saveScreenshot("lines-" + strings.NewReplacer("/", "", ", ", "-", " wide", "").Replace(what))
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s: %q is missing in\n%s", what, want, got)
				}
			}
			if c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("%s: unwanted %q in\n%s", what, c.not, got)
			}
			b.checkReadable(what)
		}
	}
	b.drawChart("lineChart", newPlot("x", "bit/s", newSeries("a", 1e6, nil, 2e6, 3e6, nil)), 60, 760)
	path := runAction(b, chromedp.Evaluate[string](`document.querySelector(".line").getAttribute("d")`))
	if !regexp.MustCompile(`^M[\d.]+ [\d.]+M[\d.]+ [\d.]+L[\d.]+ [\d.]+$`).MatchString(path) {
		t.Errorf("a line with gaps is %q", path)
	}
}

// checkReadable fails the test if labels of the chart cover each other or leave it, or if two lines
// have the same dash pattern.
func (b *browser) checkReadable(what string) {
	b.Helper()
	found := runAction(b, chromedp.Evaluate[[]string](`(() => {
		const svg = document.querySelector(".chart"), out = [], edge = svg.getBoundingClientRect();
		const texts = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
		texts.forEach(([text, a], i) => {
			if (a.left < edge.left || a.right > edge.right || a.top < edge.top || a.bottom > edge.bottom)
				out.push(text + " is outside");
			for (const [other, b] of texts.slice(i + 1))
				if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
					out.push(text + " covers " + other);
		});
		if (new Set(plot.dashes).size < 8) out.push("lines are dashed alike");
		return out })()`))
	if len(found) > 0 {
		b.Errorf("%s: %s", what, strings.Join(found, "; "))
	}
}

// checkBarCharts checks bars of bytes and joules by day and by month.
func checkBarCharts(t *testing.T, b *browser) {
	b.TB = t
	bars := fields{"title": "Used by day <over wlan0>", "unit": "B", "names": []string{}, "values": []float64{}}
	got := b.drawChart("barChart", bars, 400)
	if !strings.Contains(got, "Nothing to show yet.") || !strings.Contains(got, ", kB\n") {
		t.Errorf("nothing: %s", got)
	}
	for day := 1; day <= 31; day++ {
		bars["names"] = append(bars["names"].([]string), fmt.Sprintf("2026-10-%02d", day))
		bars["values"] = append(bars["values"].([]float64), float64(day%30)*1.5e8)
	}
	for _, width := range []int{240, 400, 1200} {
		b.runSteps(chromedp.EmulateViewport(int64(width)+80, 400))
		got := b.drawChart("barChart", bars, width)
		b.saveScreenshot(fmt.Sprintf("bars-%d", width))
		for _, want := range []string{
			"Used by day <over wlan0>, GB\n", "2026-10-31: 150 MB. Most in 2026-10-29: 4.35 GB.\n",
			"\n4\n5\n", "\n2026-10-31\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%d wide: %q is missing in\n%s", width, want, got)
			}
		}
		b.checkReadable(fmt.Sprintf("bars, %d wide", width))
	}
	bars["unit"] = "J"
	got = b.drawChart("barChart", bars, 400)
	if !strings.Contains(got, "2026-10-31: 150000 kJ. ") || !strings.Contains(got, ", kJ\n") {
		t.Errorf("joules: %s", got)
	}
	use := func(from, link, purpose string, n float64) fields {
		return fields{"from": from, "link": link, "purpose": purpose,
			"down_bytes": n, "up_bytes": 1, "radio_joules": n / 8}
	}
	u := fields{
		"days": []fields{
			use("2026-10-30", "wlan0", "direct", 9),
			use("2026-11-02", "wlan0", "direct", 19),
			use("2026-11-02", "wwan0", "hs-path", 29),
			use("2026-11-02", "wlan0", "pipe", 999),
		},
		"months": []fields{
			use("2026-10-01", "wlan0", "direct", 5),
			use("2026-10-31", "wwan0", "direct", 6),
			use("2026-11-01", "wlan0", "direct", 7),
		},
	}
	for _, c := range [][2]string{
		{`{"period":"day","of":"bytes","link":""}`, `Used by day|2026-10-30 2026-10-31 2026-11-01 2026-11-02|10 0 0 50`},
		{`{"period":"day","of":"joules","link":"wlan0"}`,
			`Energy of radios by day, estimated over wlan0|2026-10-30 2026-10-31 2026-11-01 2026-11-02|1.125 0 0 127.25`},
		{`{"period":"month","of":"joules","link":""}`,
			`Energy of radios by month, estimated|2026-10-01 2026-10-31 2026-11-01|0.625 0.75 0.875`},
		{`{"period":"day","of":"bytes","link":"wwan0"}`, `Used by day over wwan0|2026-11-02|30`},
		{`{"period":"day","of":"bytes","link":"eth0"}`, `Used by day over eth0||`},
		{`{"period":"month","of":"bytes","link":""}`, `Used by month|2026-10-01 2026-10-31 2026-11-01|6 7 8`},
	} {
		got := runAction(b, chromedp.Evaluate[string](
			`((x) => [x.title, x.names.join(" "), x.values.join(" ")].join("|"))`+
				`(usage.usageBars(`+marshalJSON(t, u)+`, `+c[0]+`))`))
		if got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
	}
}

// checkBestOther checks which set of links the console names beside the chosen one.
func checkBestOther(t *testing.T, b *browser) {
	b.TB = t
	sets := []fields{{"seconds": 1.0, "joules": 1.0, "why_not": "chosen"},
		{"seconds": 0.4, "joules": 60.0, "why_not": "fast"}, {"seconds": 1.2, "joules": 0.5, "why_not": "slow"}}
	for every, want := range map[float64]string{0: "fast", 5: "slow"} {
		x := fields{"sets": sets, "every_seconds": every}
		if got := runAction(b, chromedp.Evaluate[string](`advice.bestOther(`+marshalJSON(t, x)+`).why_not`)); got != want {
			t.Errorf("each %g s: %q, want %q", every, got, want)
		}
	}
}

// checkChartWidth checks that a chart on the page adapts to another width at once.
func checkChartWidth(t *testing.T, b *browser) {
	b.TB = t
	b.runSteps(chromedp.EmulateViewport(900, 400))
	b.runSteps(chromedp.Evaluate[chromedp.Void](`(() => {
		const p = ` + marshalJSON(t, newPlot("Down by device", "bit/s", newLines(3)...)) + `;
		const svg = draw(plot.lineChart(p, 60, 760));
		svg.parentNode.style.width = "auto"; svg.show((width) => plot.lineChart(p, 60, width)); })()`))
	for _, width := range []int64{900, 360, 1000} {
		b.runSteps(chromedp.EmulateViewport(width, 400))
		b.waitUntil(fmt.Sprintf("one chart unit is one pixel at width %d", width),
			`(() => { const svg = document.querySelector(".chart"); `+
				`return Math.abs(svg.viewBox.baseVal.width - svg.getBoundingClientRect().width) < 1 })()`)
		b.checkReadable(fmt.Sprint(width))
	}
}

// checkChartsInTheDark checks that a chart on the page follows the system's light or dark scheme.
func checkChartsInTheDark(t *testing.T, b *browser) {
	b.TB = t
	b.runSteps(chromedp.EmulateViewport(840, 400))
	colours := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		params := emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, params)
		if err != nil {
			t.Fatal(err)
		}
		b.drawChart("lineChart", newPlot("Down by device", "bit/s", newLines(8)...), 60, 760)
		b.saveScreenshot("scheme-" + scheme)
		colours[runAction(b, chromedp.Evaluate[string](`["line", "head", "rule"].map((c) => {
			const s = getComputedStyle(document.querySelector("." + c));
			return s.stroke + s.fill }).join()`))] = true
	}
	if len(colours) != 2 {
		t.Errorf("light and dark have the same colours: %v", colours)
	}
}
