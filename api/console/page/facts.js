// SPDX-License-Identifier: Apache-2.0
// Battery, temperature and link of devices, and the energy of their radios.

import { h, put, set, table, joules } from "./dom.js";

// battery describes the battery of a device.
export function battery(f) {
  if (f?.battery_percent === undefined) return f?.charging === undefined ? "" : f.charging ? "plugged in" : "in use";
  return `${f.battery_percent.toFixed(0)} %` + (f.charging ? ", charging" : "");
}

const radios = (d) => (d.radios ?? []).filter((r) => r.joules > 0);

// facts makes a card of the devices with known facts.
export function facts() {
  const list = table("Facts reported by devices, and the estimated energy of their radios since the start of this " +
    "mpbond, without screen and processor; of a helper only for this device.", [
    { title: "Device", of: (d) => d.name + (d.self ? " (this one)" : "") },
    { title: "Battery", class: "wide", of: (d, cell) => {
      const text = battery(d.facts), full = d.facts?.battery_percent;
      if (full === undefined) return text;
      if (!cell.querySelector("meter")) cell.replaceChildren(h("span", null, h("span"), " ",
        h("meter", { min: 0, max: 100, low: 20, high: 50, optimum: 100 })));
      const [span, bar] = cell.firstElementChild.children;
      put(span, text);
      set(bar, "value", full);
      set(bar, "aria-label", "Battery of " + d.name);
    } },
    { title: "Temperature", number: true,
      of: (d) => (d.facts?.temperature_c === undefined ? "" : d.facts.temperature_c.toFixed(1) + " °C") },
    { title: "Link", class: "wide", of: (d) => [d.facts?.link, d.facts?.interface].filter(Boolean).join(", ") },
    { title: "Metered", class: "wide",
      of: (d) => ({ true: "yes, it costs money", false: "no" })[d.facts?.metered] ?? "" },
    { title: "Signal", number: true,
      of: (d) => (d.facts?.signal_percent === undefined ? "" : d.facts.signal_percent.toFixed(0) + " %") },
    { title: "Radio energy (estimate)", class: "wide", of: (d) => radios(d).map(
      (r) => `${joules(r.joules)} (${[r.kind, r.link].filter(Boolean).join(" ")})`).join(", ") },
  ], (d) => d.id, "");
  list.firstElementChild.classList.add("pairs");
  const el = h("section", { class: "card", hidden: true, "aria-labelledby": "h-facts" },
    h("h2", { id: "h-facts" }, "Battery, heat and energy"), list);
  el.update = (st) => {
    const known = st.devices.filter((d) => d.facts || radios(d).length > 0);
    el.hidden = known.length === 0;
    list.show(known);
  };
  return el;
}
