// SPDX-License-Identifier: Apache-2.0
// The list of events.

import { h, put, bytes, clock } from "./dom.js";

const maxShown = 200;
const all = []; // newest last
let shownList = null, missed = 0;

// describe returns an event as text, in the words of `mpbond events`.
function describe(e) {
  const because = e.reason ? ` (${e.reason})` : "";
  switch (e.kind) {
    case "device_up": return `${e.device} is connected`;
    case "device_down": return `${e.device} is away`;
    case "device_added": return `${e.device} is trusted as ${e.text}`;
    case "device_renamed": return `${e.text} is renamed to ${e.device}`;
    case "device_removed": return `${e.device} is no longer trusted`;
    case "device_paused": return `${e.device} is paused`;
    case "device_resumed": return `${e.device} is resumed`;
    case "device_suspended": return `${e.device} is suspended: ${e.reason}`;
    case "device_unsuspended": return `${e.device} is no longer suspended`;
    case "subflow_up": return `subflow ${e.subflow} by ${e.device} joined${because}`;
    case "subflow_down": return `subflow ${e.subflow} by ${e.device} ended${because}`;
    case "subflow_silent": return `subflow ${e.subflow} is silent, ${bytes(e.bytes ?? 0)} are sent over others`;
    case "pipe_up": return `pipe with ${e.device} at ${e.text} is ready`;
    case "pipe_down": return e.subflow ? `pipe of subflow ${e.subflow} with ${e.device} broke`
      : `pipe with ${e.device} ended${because}`;
    case "pipe_moved": return `subflow ${e.subflow} by ${e.device} moved to the pipe at ${e.text}${because}`;
    case "policy_changed": return `policy loaded from ${e.text}${because}`;
    case "policy_refused": return `policy not changed: ${e.text}`;
    case "cap_warning": return `${e.device} is nearly at its cap: ${e.text}`;
    case "cap_reached": return `${e.device}: ${e.text}`;
    case "cap_cleared": return `${e.device} has room again: ${e.text}`;
    case "cell_received": return `cell messages for ${e.device} are received`;
    case "cell_lost": return `senders get no cell feedback for ${e.device}: ${e.reason}`;
    case "cell_renamed": return `the cells of ${e.device} call this device ${e.text}, found by what arrives`;
    case "handoff": return `cell ${e.text} serves ${e.device} now (${e.reason})`;
    case "relay_up": return `subflow ${e.relay} of ${e.device} to ${e.text} is relayed`;
    case "relay_down": return `subflow ${e.relay} of ${e.device} ended, ${bytes(e.bytes ?? 0)} relayed${because}`;
    case "stream_open": return `stream ${e.stream} to ${e.text} opened`;
    case "stream_class_changed": return `stream ${e.stream} changed to mode ${e.text}`;
    case "stream_close": return `stream ${e.stream} closed, ${bytes(e.bytes ?? 0)} received${because}`;
    case "flow_open": return `datagram flow ${e.flow} opened`;
    case "flow_move": return `datagram flow ${e.flow} moved to subflow ${e.subflow}${because}`;
    case "flow_close": return `datagram flow ${e.flow} closed, ${e.datagrams ?? 0} datagrams${because}`;
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
    h("div", { class: "head" }, h("h2", { id: "h-events" }, "Events"),
      h("label", { for: "with-apps" }, apps, "show connections of apps")), lost, none, list);
  let drawn = -1;
  function draw() {
    const some = all.filter((e) => apps.checked || !isApp(e)).slice(-maxShown).reverse();
    none.hidden = some.length > 0;
    lost.hidden = missed === 0;
    put(lost, `${missed} earlier events were not kept.`);
    list.replaceChildren(...some.map((e) => h("li", { class: bad.includes(e.kind) && "bad" },
      h("time", { datetime: e.t }, clock(e.t)), h("span", null, describe(e)))));
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
