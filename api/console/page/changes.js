// SPDX-License-Identifier: Apache-2.0
// The list of events.

import { h, put, clock } from "./dom.js";

const maxShown = 200;
const all = []; // newest last
let shownList = null, missed = 0;

// describe returns an event as text.
function describe(e) {
  const by = e.device ? " by " + e.device : "", at = e.text ? " at " + e.text : "";
  switch (e.kind) {
    case "device_up": return `${e.device} has come`;
    case "device_down": return `${e.device} has gone`;
    case "pipe_up": return `pipe with ${e.device}${at} is ready`;
    case "pipe_down": return `pipe with ${e.device}${at} has ended${e.subflow ? ", under subflow " + e.subflow : ""}${e.reason ? ": " + e.reason : ""}`;
    case "pipe_moved": return `subflow ${e.subflow}${by} goes on over the pipe${at} (${e.reason || "better"})`;
    case "subflow_up": return `subflow ${e.subflow}${by} joined (${e.reason})`;
    case "subflow_down": return `subflow ${e.subflow}${by} has ended${e.reason ? ": " + e.reason : ""}`;
    case "subflow_silent": return `subflow ${e.subflow}${by} is silent; others take over`;
    case "relay_up": return `relaying subflow ${e.relay ?? ""}`;
    case "relay_down": return `relay of subflow ${e.relay ?? ""} ended`;
    case "stream_open": return `stream ${e.stream} with ${e.text} opened`;
    case "stream_close": return `stream ${e.stream} closed${e.reason ? ": " + e.reason : ""}`;
    case "flow_open": return `flow ${e.flow} opened`;
    case "flow_move": return `flow ${e.flow} goes by subflow ${e.subflow}`;
    case "flow_close": return `flow ${e.flow} closed`;
  }
  return [e.kind.replaceAll("_", " "), e.device, e.text, e.reason].filter(Boolean).join(": ");
}

const bad = ["device_down", "subflow_down", "subflow_silent", "pipe_down", "error"];
const isApp = (e) => /^(stream|flow)_/.test(e.kind);

export function changes() {
  const list = h("ol", { class: "log", reversed: true });
  const apps = h("input", { type: "checkbox", id: "with-apps", onchange: () => draw() });
  const none = h("p", { class: "soft" }, "No events yet."), lost = h("p", { class: "soft", hidden: true });
  const el = h("section", { class: "card", "aria-labelledby": "h-events" },
    h("div", { class: "head" }, h("h2", { id: "h-events" }, "Events"), h("label", { for: "with-apps" }, apps, "show connections of apps")), lost, none, list);
  let drawn = -1;
  function draw() {
    const some = all.filter((e) => apps.checked || !isApp(e)).slice(-maxShown).reverse();
    none.hidden = some.length > 0;
    lost.hidden = missed === 0;
    put(lost, `${missed} earlier events were not kept.`);
    list.replaceChildren(...some.map((e) => h("li", { class: bad.includes(e.kind) && "bad" }, h("time", { datetime: e.t }, clock(e.t)), h("span", null, describe(e)))));
  }
  el.update = () => {
    if (drawn !== changes.seq) draw();
    drawn = changes.seq;
  };
  shownList = el;
  return el;
}

changes.describe = describe;

// take stores an event. It returns whether the event is newer than the page.
changes.take = (e, known) => {
  changes.seq = e.seq;
  all.push(e);
  if (all.length > 4 * maxShown) all.splice(0, all.length - 4 * maxShown);
  if (shownList?.isConnected) shownList.update();
  return known !== undefined && Date.now() - new Date(e.t) < 10000;
};

// position applies the reader's position.
changes.position = (p) => {
  if (p.restarted) {
    all.length = 0;
    missed = 0;
  }
  missed += p.missed_events ?? 0;
  changes.seq = p.seq;
};
