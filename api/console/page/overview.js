// SPDX-License-Identifier: Apache-2.0
// The overview.

import { h, put, keyed, rate, bytes } from "./dom.js";
import { topology } from "./topology.js";
import { chart } from "./charts.js";
import { fleetCard } from "./fleet.js";

const sum = (list, f) => list.reduce((n, x) => n + (f(x) || 0), 0);

// duration formats seconds.
function duration(seconds) {
  const d = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, min = Math.floor(seconds / 60) % 60;
  return d ? `${d} d ${hours} h` : hours ? `${hours} h ${min} min` : min ? `${min} min` : Math.floor(seconds) + " s";
}

// totals returns the download and upload rates of an mpbond.
export function totals(st) {
  const subflows = st.bonds.flatMap((b) => b.subflows);
  const rx = sum(subflows, (p) => p.rx_rate_bps), tx = sum(subflows, (p) => p.tx_rate_bps);
  const [down, up] = st.role === "server" ? [tx, rx] : [rx, tx];
  return { down: down + (st.relayed?.down ?? 0), up: up + (st.relayed?.up ?? 0) };
}

// alarms returns the problems, one for each device. A pause or a suspension by policy is intended
// and is none.
export function alarms(st) {
  const found = new Map(), known = new Map(st.devices.map((d) => [d.name, d]));
  const wanted = (name, text) => known.get(name)?.paused || known.get(name)?.suspended ||
    known.get(name)?.facts?.refuses || /\bpaused\b|^suspended: /.test(text);
  const add = (who, what, hint) => { if (!found.has(who) && !wanted(who, what)) found.set(who, { who, what, hint }); };
  const subflows = st.bonds.flatMap((b) => b.subflows);
  for (const p of subflows) {
    if (!p.last_error || p.state === "up" || subflows.some((o) => o.device === p.device && o.state === "up")) continue;
    add(p.device, p.trouble?.text ?? p.last_error, p.trouble?.hint);
  }
  for (const p of st.pipes) {
    const works = st.pipes.some((o) => o.device === p.device && !o.error);
    if (p.error && !works) add(p.device, `no pipe at ${p.address}: ${p.error}`, p.hint);
    else if (!p.error && p.trouble) add(p.device, "it does not reach its server: " + p.trouble.text, p.trouble.hint);
  }
  for (const d of st.devices) if (d.key_copied) add(d.name, "two running mpbond use its key",
    "revoke it, and pair each device with its own key");
  if (st.policy?.error) add("policy", st.policy.error);
  return [...found.values()];
}

export function overview() {
  const picture = topology(), fleet = fleetCard(), plot = chart("Rates by device", ["devices"]);
  const dl = h("dl", { class: "numbers" });
  const number = (name) => { const dd = h("dd"); dl.append(h("div", null, h("dt", null, name), dd)); return dd; };
  const cells = { down: number("Down"), up: number("Up"), subflows: number("Subflows up"), streams: number("Streams"),
    memory: number("Memory"), uptime: number("Running for") };
  const list = h("ul"), trouble = h("div", { class: "notice bad", id: "alarms", hidden: true }, list);
  const el = h("div", { class: "two" },
    h("section", { class: "card", "aria-labelledby": "h-topology" }, h("h2", { id: "h-topology" }, "Devices and links"),
      trouble, picture),
    h("section", { class: "card", "aria-labelledby": "h-now" }, h("h2", { id: "h-now" }, "Now"), dl, plot),
    fleet);
  el.update = (st) => {
    picture.update(st);
    plot.update();
    fleet.update(st);
    const t = totals(st);
    put(cells.down, rate(t.down));
    put(cells.up, rate(t.up));
    put(cells.subflows, String(sum(st.bonds, (b) => b.subflows.filter((p) => p.id && p.state === "up").length) +
      (st.helper?.subflows ?? 0)));
    put(cells.streams, String(sum(st.bonds, (b) => b.streams)));
    put(cells.memory, bytes(st.memory_bytes));
    put(cells.uptime, duration(st.uptime_seconds));
    const wrong = alarms(st);
    trouble.hidden = wrong.length === 0;
    keyed(list, wrong, (w) => w.who, () => {
      const li = h("li"), who = h("strong"), what = h("span"), hint = h("span", { class: "hint" });
      li.append(who, " ", what, hint);
      li.update = (w) => { put(who, w.who + ":"); put(what, w.what); put(hint, w.hint ?? ""); };
      return li;
    });
  };
  return el;
}
