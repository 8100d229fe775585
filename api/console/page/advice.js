// SPDX-License-Identifier: Apache-2.0
// Which links transfers would use, what others would take, and how right forecasts were.

import { h, table, notice, rate, bytes, joules, ms, clock } from "./dom.js";
import { get } from "./api.js";

const refreshInterval = 5000; // ms between requests
const shownForecasts = 20;

const time = (s) => (s < 1 ? ms(s * 1000) : s.toFixed(1) + " s");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// transferName names a transfer with its size, direction and interval.
function transferName(t) {
  return `${capital(t.name)}, ${bytes(t.bytes)} ${t.upload ? "up" : "down"}` +
    (t.every_seconds ? ` each ${t.every_seconds} s` : "");
}

// bestOther returns the set of links of a transfer, after the chosen one, that costs least: time, and 10
// ms for each joule. A repeated transfer gains nothing by taking less than a third of its interval.
export function bestOther(t) {
  const cost = (x) => Math.max(x.seconds, (t.every_seconds ?? 0) / 3) + x.joules / 100;
  return t.sets.slice(1).sort((x, y) => cost(x) - cost(y))[0];
}

export function advice() {
  const problem = h("p", { hidden: true }), otherProblem = h("p", { hidden: true });
  let names = new Map(); // of links, by subflow
  const linkNames = (set) => set.subflows.map((id) => names.get(id) ?? "subflow " + id).join(" + ");
  const guessed = (bps, isGuess) => (isGuess ? "~" : "") + rate(bps);
  const links = table("Links as they are known at this place. ~ marks a guess: nothing was measured here yet.", [
    { title: "Device", of: (s) => s.device },
    { title: "Radio", class: "wide", of: (s) => (s.radio ?? "none") + (s.asleep ? ", asleep" : "") },
    { title: "Tier", class: "wide", of: (s) => s.tier ?? "primary" },
    { title: "Down", number: true, of: (s) => guessed(s.down_bps, s.down_guessed) },
    { title: "Up", number: true, of: (s) => guessed(s.up_bps, s.up_guessed) },
    { title: "Round trip", number: true, of: (s) => ms(s.rtt_ms) },
    { title: "Loss", number: true, of: (s) => s.loss_percent.toFixed(1) + " %" },
  ], (s) => s.id, "No link is up.");
  const transfers = table("What transfers that begin now would use, and the best of the other sets of links.", [
    { title: "Transfer", of: transferName },
    { title: "Links", class: "wide", of: (t) => linkNames(t.sets[0]) },
    { title: "Time", number: true, of: (t) => time(t.sets[0].seconds) },
    { title: "Energy of radios", number: true, of: (t) => joules(t.sets[0].joules) },
    { title: "Reason", class: "why", of: (t) => t.reason },
    { title: "Best other", class: "why", of: (t) => {
      const other = bestOther(t);
      return other ? `${linkNames(other)}: ${time(other.seconds)}, ${joules(other.joules)}; ${other.why_not}` : "";
    } },
  ], (t) => t.name, "");
  const forecasts = table("Answers that arrived, the newest first: how long each took after its first 16 KB, and " +
    "what was expected.", [
    { title: "At", of: (f) => clock(f.at) },
    { title: "Bytes", number: true, of: (f) => bytes(f.bytes) },
    { title: "Links", number: true, of: (f) => String(f.subflows) },
    { title: "Took", number: true, of: (f) => time(f.seconds) },
    { title: "Expected", number: true, of: (f) => time(f.expected_seconds) },
  ], (f) => f.at + "/" + f.bytes, "No answer of more than 32 KB has arrived yet.");
  const error = h("p", { class: "soft" });
  const el = h("div", { class: "stackof" },
    h("section", { class: "card", "aria-labelledby": "h-advice" }, h("h2", { id: "h-advice" }, "Advice"), problem,
      links, transfers),
    h("section", { class: "card", "aria-labelledby": "h-forecasts" }, h("h2", { id: "h-forecasts" }, "Forecasts"),
      otherProblem, error, forecasts));
  let last = -Infinity, busy = false;
  function showAdvice(a) {
    const isShared = (d) => a.subflows.filter((s) => s.device === d).length > 1;
    names = new Map(a.subflows.map((s) => [s.id, s.device + (isShared(s.device) ? ` (${s.id})` : "")]));
    links.show(a.subflows);
    transfers.show(a.transfers);
  }
  function showForecasts(past) {
    forecasts.show(past.forecasts.slice(0, shownForecasts));
    const count = past.forecasts.length, percent = past.median_error_percent.toFixed(0);
    error.textContent = count > 0 ? `The median error of the last ${count} forecasts is ${percent} %.` : "";
  }
  async function refresh() {
    busy = true;
    last = performance.now();
    for (const [path, show, parts, said] of [["/v2/advice", showAdvice, [links, transfers], problem],
      ["/v2/advice/history", showForecasts, [forecasts, error], otherProblem]]) {
      let failed;
      try {
        show(await get(path));
      } catch (e) {
        failed = e;
      }
      for (const part of parts) part.hidden = Boolean(failed);
      notice(said, "bad", failed?.message ?? "", failed?.hint);
    }
    busy = false;
  }
  el.update = () => {
    if (!busy && performance.now() - last >= refreshInterval) refresh();
  };
  return el;
}
