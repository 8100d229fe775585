// Plots that mpbond draws: a picture that is fetched anew each second, the same as
// a file, and its values as a table.

import { h, put, set, table, rate, ms, clock, save, say } from "./dom.js";
import { get, request } from "./api.js";

const names = { devices: "by device", subflows: "by subflow", apps: "by app", destinations: "by destination", pad: "predicted delivery time" };
let count = 0;

// chart makes a figure with a choice of plots.
export function chart(title, plots) {
  const n = ++count;
  const img = h("img", { alt: title + ": nothing yet" });
  const box = h("div", { class: "plot" }, img);
  const choice = (label, options, id) => {
    const el = h("select", { id: `chart-${n}-${id}`, onchange: () => show() }, options.map(([v, text]) => h("option", { value: v }, text)));
    return [el, h("label", { for: el.id }, label, el)];
  };
  const [plot, plotLabel] = choice("Plot", plots.map((p) => [p, names[p]]), "plot");
  const [direction, directionLabel] = choice("Direction", [["down", "down"], ["up", "up"]], "direction");
  const [span, spanLabel] = choice("Time", [["minute", "last minute"], ["hour", "last hour"]], "span");
  const values = h("div"), details = h("details", { ontoggle: () => show() }, h("summary", null, "Values as a table"), values);
  const problem = h("p", { class: "soft", hidden: true });
  const query = () => `?direction=${direction.value}&span=${span.value}`;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const file = (format) => async () => {
    try {
      const answer = await request("GET", `/v1/plots/${plot.value}/${format}${query()}&theme=${dark.matches ? "dark" : "light"}`);
      save(await answer.blob(), `mpbond-${plot.value}.${format}`);
    } catch (e) { say(e.message); }
  };
  const el = h("figure", null,
    h("div", { class: "tools" }, plots.length > 1 && plotLabel, directionLabel, spanLabel), box, problem,
    h("div", { class: "tools small", role: "group", "aria-label": "This plot as a file" }, ["svg", "png", "csv"].map((f) => h("button", { type: "button", onclick: file(f) }, f.toUpperCase()))),
    details);
  let shown = null, busy = false;
  // show fetches the picture, and the values if somebody looks at them.
  async function show() {
    if (busy || !el.isConnected) return;
    busy = true;
    directionLabel.hidden = plot.value === "pad";
    try {
      const width = Math.round(Math.min(Math.max(box.clientWidth, 240), 1200));
      const answer = await request("GET", `/v1/plots/${plot.value}/svg${query()}&theme=${dark.matches ? "dark" : "light"}&width=${width}`);
      const text = await answer.text();
      const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
      img.src = url;
      await img.decode().catch(() => {});
      if (shown) URL.revokeObjectURL(shown);
      shown = url;
      set(img, "alt", alternative(text));
      if (details.open) await list();
      problem.hidden = true;
    } catch (e) {
      put(problem, e.message + (e.hint ? ": " + e.hint : ""));
      problem.hidden = false;
    }
    busy = false;
  }
  async function list() {
    const p = await get(`/v1/plots/${plot.value}${query()}`);
    const text = (v) => (v === null || v === undefined ? "–" : p.unit === "ms" ? ms(v) : rate(v));
    const columns = [{ title: "Time", of: (i) => clock(p.times[i]) }, ...p.series.map((s) => ({ title: s.name, number: true, of: (i) => text(s.values[i]) }))];
    const t = table(p.title, columns, (i) => p.times[i], "There are no values yet.");
    t.show([...p.times.keys()].reverse().filter((_, i) => i % 5 === 0));
    values.replaceChildren(t);
  }
  el.update = show;
  // offer has a plot to choose, or not.
  el.offer = (name, on) => {
    for (const o of plot.options) if (o.value === name) o.hidden = !on;
  };
  return el;
}

// alternative is the picture's own words about itself.
function alternative(svg) {
  const get = (tag) => new RegExp(`<${tag} id="."[^>]*>([^<]*)<`).exec(svg)?.[1] ?? "";
  const plain = (t) => t.replace(/&(#\d+|#x[0-9A-Fa-f]+|\w+);/g, (all, e) => (e[0] === "#" ? String.fromCodePoint(Number(e[1] === "x" ? "0" + e.slice(1) : e.slice(1))) : { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" }[e] ?? all));
  return plain(get("title") + ". " + get("desc"));
}
