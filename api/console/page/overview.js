// What there is at a glance.

import { h, put, rate, bytes } from "./dom.js";
import { topology } from "./topology.js";
import { chart } from "./charts.js";

const sum = (list, f) => list.reduce((n, x) => n + (f(x) || 0), 0);

// duration of seconds, in words.
function duration(seconds) {
  const d = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, min = Math.floor(seconds / 60) % 60;
  return d ? `${d} d ${hours} h` : hours ? `${hours} h ${min} min` : min ? `${min} min` : Math.floor(seconds) + " s";
}

// totals are the rates down and up of all that a mpbond carries.
export function totals(st) {
  const paths = st.bonds.flatMap((b) => b.paths);
  const rx = sum(paths, (p) => p.rx_rate_bps), tx = sum(paths, (p) => p.tx_rate_bps);
  const [down, up] = st.role === "server" ? [tx, rx] : [rx, tx];
  return { down: down + (st.relayed?.down ?? 0), up: up + (st.relayed?.up ?? 0) };
}

export function overview() {
  const picture = topology(), plot = chart("Rates by device", ["devices"]);
  const dl = h("dl", { class: "numbers" });
  const number = (name) => { const dd = h("dd"); dl.append(h("div", null, h("dt", null, name), dd)); return dd; };
  const cells = { down: number("Down"), up: number("Up"), paths: number("Subflows up"), streams: number("Streams"), memory: number("Memory"), uptime: number("Running for") };
  const trouble = h("div", { class: "notice bad", hidden: true });
  const el = h("div", { class: "two" },
    h("section", { class: "card", "aria-labelledby": "h-topology" }, h("h2", { id: "h-topology" }, "Devices and links"), trouble, picture),
    h("section", { class: "card", "aria-labelledby": "h-now" }, h("h2", { id: "h-now" }, "Now"), dl, plot));
  el.update = (st) => {
    picture.update(st);
    plot.update();
    const t = totals(st);
    put(cells.down, rate(t.down));
    put(cells.up, rate(t.up));
    put(cells.paths, String(sum(st.bonds, (b) => b.paths.filter((p) => p.id && p.state === "up").length) + (st.helper?.subflows ?? 0)));
    put(cells.streams, String(sum(st.bonds, (b) => b.streams)));
    put(cells.memory, bytes(st.memory_bytes));
    put(cells.uptime, duration(st.uptime_seconds));
    const wrong = [...st.bonds.flatMap((b) => b.paths).filter((p) => p.last_error && p.state !== "up").map((p) => p.last_error), ...st.pipes.filter((p) => p.error).map((p) => `pipe to ${p.device}: ${p.error}${p.hint ? " (" + p.hint + ")" : ""}`), st.policy?.error && "policy: " + st.policy.error].filter(Boolean);
    trouble.hidden = wrong.length === 0;
    put(trouble, [...new Set(wrong)].join(" · "));
  };
  return el;
}
