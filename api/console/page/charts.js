// SPDX-License-Identifier: Apache-2.0
// Plots of what mpbond carries: a picture that is redrawn each second, downloads, and the values as
// a table.

import { h, put, table, rate, ms, clock, save } from "./dom.js";
import { get, request } from "./api.js";
import { canvas, lineChart } from "./plot.js";
import { fileButtons, saveSVG, savePNG } from "./picture.js";

const names = { devices: "by device", subflows: "by subflow", apps: "by app", destinations: "by destination",
  pad: "predicted delivery time" };
const spans = { minute: 60, hour: 3600 }; // seconds
let count = 0;

// chart makes a figure with a choice of plots.
export function chart(title, plots) {
  const n = ++count;
  const svg = canvas(`chart-${n}`, title);
  const choice = (label, options, id) => {
    const el = h("select", { id: `chart-${n}-${id}`, onchange: () => show() },
      options.map(([v, text]) => h("option", { value: v }, text)));
    return [el, h("label", { for: el.id }, label, el)];
  };
  const [plot, plotLabel] = choice("Plot", plots.map((p) => [p, names[p]]), "plot");
  const [direction, directionLabel] = choice("Direction", [["down", "down"], ["up", "up"]], "direction");
  const [span, spanLabel] = choice("Time", [["minute", "last minute"], ["hour", "last hour"]], "span");
  const values = h("div"), details = h("details", { ontoggle: () => show() }, h("summary", null, "Values as a table"),
    values);
  const problem = h("p", { class: "soft", hidden: true });
  const query = () => `?direction=${direction.value}&span=${span.value}`;
  const file = () => `mpbond-${plot.value}`;
  const files = fileButtons("This plot as a file", {
    SVG: () => saveSVG(svg, file()),
    PNG: () => savePNG(svg, file()),
    CSV: async () => save(await (await request("GET", `/v2/plots/${plot.value}/csv${query()}`)).blob(),
      file() + ".csv"),
  });
  const el = h("figure", null,
    h("div", { class: "tools" }, plots.length > 1 && plotLabel, directionLabel, spanLabel),
    h("div", { class: "plot" }, svg), problem, files, details);
  let busy = false;
  // show fetches and draws the values, and lists them if the table is open.
  async function show() {
    if (busy || !el.isConnected) return;
    busy = true;
    directionLabel.hidden = plot.value === "pad";
    try {
      const seconds = spans[span.value], p = await get(`/v2/plots/${plot.value}${query()}`);
      svg.show((width) => lineChart(p, seconds, width));
      if (details.open) list(p);
      problem.hidden = true;
    } catch (e) {
      put(problem, e.message + (e.hint ? ": " + e.hint : ""));
      problem.hidden = false;
    }
    busy = false;
  }
  function list(p) {
    const text = (v) => (v === null || v === undefined ? "–" : p.unit === "ms" ? ms(v) : rate(v));
    const columns = [{ title: "Time", of: (i) => clock(p.times[i]) },
      ...p.series.map((s) => ({ title: s.name, number: true, of: (i) => text(s.values[i]) }))];
    const t = table(p.title, columns, (i) => p.times[i], "There are no values yet.");
    t.show([...p.times.keys()].reverse().filter((_, i) => i % 5 === 0));
    values.replaceChildren(t);
  }
  el.update = show;
  // offer shows or hides a plot in the choice.
  el.offer = (name, on) => {
    for (const o of plot.options) if (o.value === name) o.hidden = !on;
  };
  return el;
}
