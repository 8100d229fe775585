// SPDX-License-Identifier: Apache-2.0
// What this device's links carried, by day and month.

import { h, table, badge, notice, save, joules } from "./dom.js";
import { get, request } from "./api.js";
import { canvas, barChart } from "./plot.js";
import { fileButtons, saveSVG, savePNG } from "./picture.js";

const refreshInterval = 5000; // ms between requests: it grows slowly
const shownDays = 31, shownMonths = 13; // of bars
const purposes = { direct: "direct subflows", "hs-path": "helping, by the Internet",
  onload: "onloading, by the Internet", pipe: "pipes, locally", subflow: "subflows of devices" };

// size formats bytes in decimal units, as providers count.
function size(n) {
  for (const [step, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= step) return (n / step).toPrecision(3) + " " + unit;
  }
  return n + " B";
}

// usageBars sums up the usage of each period up to the last known one. Days without usage have an
// empty bar; months begin where those of the links do. Bytes of pipes are local and do not count.
export function usageBars(u, { period, of, link }) {
  const list = period === "month" ? u.months : u.days, inJoules = of === "joules", sums = new Map();
  for (const used of list) {
    if (link && used.link !== link || !inJoules && used.purpose === "pipe") continue;
    sums.set(used.from, (sums.get(used.from) ?? 0) + 
      (inJoules ? used.radio_joules ?? 0 : used.down_bytes + used.up_bytes));
  }
  let names = [...sums.keys()].sort().slice(-shownMonths);
  if (period !== "month" && names.length > 0) {
    const days = daysUntil(list.map((used) => used.from).sort().at(-1)), first = days.findIndex((day) => sums.has(day));
    names = first < 0 ? [] : days.slice(first);
  }
  const title = (inJoules ? `Energy of radios by ${period}, estimated` : `Used by ${period}`) +
    (link ? ` over ${link}` : "");
  return { title, unit: inJoules ? "J" : "B", names, values: names.map((name) => sums.get(name) ?? 0) };
}

// daysUntil returns the days that a picture may show, up to the newest one.
function daysUntil(newest) {
  const day = 86_400_000, last = Date.parse(newest); // UTC: all days have the same length
  return Array.from({ length: shownDays }, (_, i) => new Date(last - (shownDays - 1 - i) * day)
    .toISOString().slice(0, 10));
}

export function usage() {
  const problem = h("p", { hidden: true });
  const svg = canvas("usage", "Usage");
  const period = h("select", { id: "usage-period", onchange: () => refresh() }, h("option", { value: "day" }, "by day"),
    h("option", { value: "month" }, "by month"));
  const what = h("select", { id: "usage-of", onchange: () => refresh() }, h("option", { value: "bytes" }, "bytes"),
    h("option", { value: "joules" }, "energy of radios"));
  const link = h("select", { id: "usage-link", onchange: () => refresh() }, h("option", { value: "" }, "all links"));
  const files = fileButtons("Usage as a file", {
    SVG: () => saveSVG(svg, "mpbond-usage"),
    PNG: () => savePNG(svg, "mpbond-usage"),
    CSV: async () => save(await (await request("GET", "/v2/usage", undefined, undefined, "text/csv")).blob(),
      "mpbond-usage.csv"),
  });
  const columns = [
    { title: "From", of: (u) => u.from },
    { title: "Until (exclusive)", of: (u) => u.until },
    { title: "Link", of: (u) => u.link },
    { title: "For", of: (u) => purposes[u.purpose] ?? u.purpose },
    { title: "Device", of: (u) => u.device ?? "" },
    { title: "Down", number: true, of: (u) => size(u.down_bytes) },
    { title: "Up", number: true, of: (u) => size(u.up_bytes) },
    { title: "Radio energy (estimate)", number: true, of: (u) => (u.radio_joules ? joules(u.radio_joules) : "") },
  ];
  const key = (u) => [u.from, u.link, u.purpose, u.device_id, u.device].join("/");
  const months = table("By month: IP packets with headers, including retransmissions, as a provider counts; and the " +
    "energy of the link's radio, if known, estimated from bytes and published measurements.", columns, key,
    "Nothing was used yet.");
  const days = table("By day, the newest first.", columns, key, "Nothing was used yet.");
  const caps = table("How much of its cap each link or device has used.", [
    { title: "Link", of: (c) => c.name },
    { title: "Cap", of: (c) => c.period + ", " + size(c.cap_bytes) },
    { title: "Used", of: (c) => h("span", null, size(c.used_bytes) + " ",
      h("meter", { min: 0, max: c.cap_bytes, value: c.used_bytes, high: c.cap_bytes * 0.8, low: c.cap_bytes * 0.8,
      optimum: 0, "aria-label": `of the cap of ${c.name}` })) },
    { title: "Room", number: true, of: (c) => size(c.room_bytes) },
    { title: "State", of: (c) => badge(c.state.replace("_", " "),
      c.state === "fine" ? "good" : c.state === "warned" ? "warn" : "bad") },
    { title: "Until", of: (c) => new Date(c.until).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) },
    { title: "Details", class: "why", of: (c) => c.text },
  ], (c) => c.name + "/" + c.period, "");
  const capCard = h("section", { class: "card", hidden: true, "aria-labelledby": "h-caps" },
    h("h2", { id: "h-caps" }, "Caps"), caps);
  const el = h("div", { class: "stackof" }, capCard,
    h("section", { class: "card", "aria-labelledby": "h-usage" }, h("h2", { id: "h-usage" }, "Usage"), problem,
      h("figure", null, h("div", { class: "tools" }, h("label", { for: "usage-period" }, "Bars", period),
        h("label", { for: "usage-of" }, "of", what), h("label", { for: "usage-link" }, "Link", link)),
        h("div", { class: "plot" }, svg),
        h("figcaption", { class: "soft" },
          "Pipes are local: their bytes are not included, the energy of their radios is."),
        files), months),
    h("section", { class: "card", "aria-labelledby": "h-days" }, h("h2", { id: "h-days" }, "Days"), days));
  let last = -Infinity, busy = false, isStale = false;
  async function refresh() {
    if (!el.isConnected) return;
    isStale = busy; // the choice changed meanwhile
    if (busy) return;
    busy = true;
    last = performance.now();
    try {
      const u = await get("/v2/usage");
      const links = [...new Set(u.days.map((d) => d.link))].sort();
      if ([...link.options].slice(1).map((o) => o.value).join("/") !== links.join("/")) {
        const chosen = link.value;
        link.replaceChildren(h("option", { value: "" }, "all links"),
          ...links.map((l) => h("option", { value: l }, l)));
        link.value = links.includes(chosen) ? chosen : "";
      }
      capCard.hidden = !u.caps?.length;
      caps.show(u.caps ?? []);
      months.show([...u.months].reverse());
      days.show([...u.days].reverse().slice(0, 200));
      notice(problem, "bad", u.not_saved ? "A restart would forget it: " + u.not_saved : "");
      const bars = usageBars(u, { period: period.value, of: what.value, link: link.value });
      svg.show((width) => barChart(bars, width));
    } catch (e) {
      notice(problem, "bad", e.message, e.hint);
    }
    busy = false;
    if (isStale) refresh();
  }
  el.update = () => {
    if (performance.now() - last >= refreshInterval) refresh();
  };
  return el;
}
