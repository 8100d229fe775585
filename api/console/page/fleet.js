// SPDX-License-Identifier: Apache-2.0
// The fleet of a server or primary.

import { h, put, rate, bytes, table, badge } from "./dom.js";

// state describes the state of a server as [text, kind of badge].
export function state(s) {
  if (s.running === undefined || s.running === null) return ["", ""];
  if (!s.running) return ["silent", "bad"];
  if (!s.listed) return ["not listed", "warn"];
  return s.draining ? ["drains", "warn"] : ["runs", "good"];
}

// summary says in a sentence what is known of a fleet.
export function summary(f) {
  if (f.engine === undefined) return `This device uses the server ${f.server}.`;
  const age = f.age_seconds < 0 ? "nothing is known of its devices yet"
    : `${f.devices ?? 0} devices are known, as of ${Math.round(f.age_seconds ?? 0)} s ago`;
  return `This is the server ${f.server}${f.draining ? ", which drains" : ""}: ${age}.` +
    (f.waiting ? ` ${f.waiting} reports wait for the engine.` : "");
}

// fleetCard shows the servers of a fleet with their load. It is hidden without one.
export function fleetCard() {
  const title = h("h2", { id: "h-fleet" }, "Fleet"), text = h("p", { class: "soft" });
  const problem = h("p", { class: "notice bad", hidden: true });
  const load = (f) => (s) => (s.running ? f(s) : "");
  const servers = table("Servers of the fleet and what they carry.", [
    { title: "Server", of: (s) => s.name },
    { title: "Region", of: (s) => s.region ?? "" },
    { title: "State", of: (s) => (state(s)[0] ? badge(...state(s)) : "") },
    { title: "Bonds", number: true, of: load((s) => String(s.bonds ?? 0)) },
    { title: "Streams", number: true, of: load((s) => String(s.streams ?? 0)) },
    { title: "Rate", number: true, of: load((s) => rate(s.rate_bps ?? 0)) },
    { title: "Processors", of: load((s) => h("meter", { min: 0, max: 1, value: s.cpu ?? 0, low: 0.7, high: 0.9,
      optimum: 0, "aria-label": `used by ${s.name}` })) },
    { title: "Memory", number: true, of: load((s) => bytes(s.memory_bytes ?? 0)) },
    { title: "Address", of: (s) => (s.addresses ?? []).join(" ") },
  ], (s) => s.name, "The list has no servers.");
  const el = h("section", { class: "card wide", hidden: true, "aria-labelledby": "h-fleet" }, title, problem, text,
    servers);
  el.update = (st) => {
    const f = st.fleet;
    el.hidden = !f;
    if (!f) return;
    put(title, "Fleet " + f.name);
    put(text, summary(f));
    put(problem, f.problem ?? "");
    problem.hidden = !f.problem;
    servers.show(f.servers);
  };
  return el;
}
