// What this device's links carried, by day and month.

import { h, set, table, badge, notice, save, say, joules } from "./dom.js";
import { get, request } from "./api.js";

const every = 5000; // ms between looks: it grows slowly
const purposes = { direct: "direct subflows", "hs-path": "helping, by the Internet", onload: "onloading, by the Internet", pipe: "pipes, locally", subflow: "subflows of devices" };

// size is in decimal units, as providers count.
function size(n) {
  for (const [step, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= step) return (n / step).toPrecision(3) + " " + unit;
  }
  return n + " B";
}

export function usage() {
  const problem = h("p", { hidden: true });
  const img = h("img", { alt: "Usage: nothing yet" });
  const box = h("div", { class: "plot" }, img);
  const period = h("select", { id: "usage-period", onchange: () => refresh() }, h("option", { value: "day" }, "by day"), h("option", { value: "month" }, "by month"));
  const what = h("select", { id: "usage-of", onchange: () => refresh() }, h("option", { value: "bytes" }, "bytes"), h("option", { value: "joules" }, "energy of radios"));
  const link = h("select", { id: "usage-link", onchange: () => refresh() }, h("option", { value: "" }, "all links"));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const query = () => `?period=${period.value}&of=${what.value}&theme=${dark.matches ? "dark" : "light"}` + (link.value ? "&link=" + encodeURIComponent(link.value) : "");
  const file = (format) => async () => {
    try {
      const answer = format === "csv" ? await request("GET", "/v1/usage", undefined, undefined, "text/csv") : await request("GET", `/v1/usage/${format}${query()}`);
      save(await answer.blob(), "mpbond-usage." + format);
    } catch (e) { say(e.message); }
  };
  const columns = [
    { title: "From", of: (u) => u.from },
    { title: "Until before", of: (u) => u.until },
    { title: "Link", of: (u) => u.link },
    { title: "For", of: (u) => purposes[u.purpose] ?? u.purpose },
    { title: "Device", of: (u) => u.device ?? "" },
    { title: "Down", number: true, of: (u) => size(u.down_bytes) },
    { title: "Up", number: true, of: (u) => size(u.up_bytes) },
    { title: "Radio took about", number: true, of: (u) => (u.radio_joules ? joules(u.radio_joules) : "") },
  ];
  const key = (u) => [u.from, u.link, u.purpose, u.device_id, u.device].join("/");
  const months = table("By month: IP packets with their headers, and each time that something was sent again, as a provider counts; and what the link's radio took for it, estimated from bytes and from what has been published of such radios, where one is known.", columns, key, "Nothing was used yet.");
  const days = table("By day, the newest first.", columns, key, "Nothing was used yet.");
  const caps = table("How far each link or device is from its cap.", [
    { title: "Link", of: (c) => c.name },
    { title: "Cap", of: (c) => c.period + ", " + size(c.cap_bytes) },
    { title: "Used", of: (c) => h("span", null, size(c.used_bytes) + " ", h("meter", { min: 0, max: c.cap_bytes, value: c.used_bytes, high: c.cap_bytes * 0.8, low: c.cap_bytes * 0.8, optimum: 0, "aria-label": `of the cap of ${c.name}` })) },
    { title: "Room", number: true, of: (c) => size(c.room_bytes) },
    { title: "State", of: (c) => badge(c.state.replace("_", " "), c.state === "fine" ? "good" : c.state === "warned" ? "warn" : "bad") },
    { title: "Until", of: (c) => new Date(c.until).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) },
    { title: "Which means", class: "why", of: (c) => c.text },
  ], (c) => c.name + "/" + c.period, "");
  const capCard = h("section", { class: "card", hidden: true, "aria-labelledby": "h-caps" }, h("h2", { id: "h-caps" }, "Caps"), caps);
  const el = h("div", { class: "stackof" }, capCard,
    h("section", { class: "card", "aria-labelledby": "h-usage" }, h("h2", { id: "h-usage" }, "Usage"), problem,
      h("figure", null, h("div", { class: "tools" }, h("label", { for: "usage-period" }, "Bars", period), h("label", { for: "usage-of" }, "of", what), h("label", { for: "usage-link" }, "Link", link)), box,
        h("figcaption", { class: "soft" }, "Pipes are local: their bytes are left out here, what radios took for them is not."),
        h("div", { class: "tools small", role: "group", "aria-label": "Usage as a file" }, ["svg", "png", "csv"].map((f) => h("button", { type: "button", onclick: file(f) }, f.toUpperCase())))), months),
    h("section", { class: "card", "aria-labelledby": "h-days" }, h("h2", { id: "h-days" }, "Days"), days));
  let last = -Infinity, shown = null, busy = false, again = false;
  async function refresh() {
    if (!el.isConnected) return;
    again = busy; // something else was chosen meanwhile
    if (busy) return;
    busy = true;
    last = performance.now();
    try {
      const u = await get("/v1/usage");
      const links = [...new Set(u.days.map((d) => d.link))].sort();
      if ([...link.options].slice(1).map((o) => o.value).join("/") !== links.join("/")) {
        const chosen = link.value;
        link.replaceChildren(h("option", { value: "" }, "all links"), ...links.map((l) => h("option", { value: l }, l)));
        link.value = links.includes(chosen) ? chosen : "";
      }
      capCard.hidden = !u.caps?.length;
      caps.show(u.caps ?? []);
      months.show([...u.months].reverse());
      days.show([...u.days].reverse().slice(0, 200));
      notice(problem, "bad", u.not_kept ? "A restart would forget it: " + u.not_kept : "");
      const width = Math.round(Math.min(Math.max(box.clientWidth, 240), 1200));
      const text = await (await request("GET", `/v1/usage/svg${query()}&width=${width}`)).text();
      const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
      img.src = url;
      await img.decode().catch(() => {});
      if (shown) URL.revokeObjectURL(shown);
      shown = url;
      set(img, "alt", (/<desc id="d">([^<]*)</.exec(text)?.[1] ?? "Usage").replaceAll("&amp;", "&"));
    } catch (e) {
      notice(problem, "bad", e.message, e.hint);
    }
    busy = false;
    if (again) refresh();
  }
  el.update = () => {
    if (performance.now() - last >= every) refresh();
  };
  return el;
}
