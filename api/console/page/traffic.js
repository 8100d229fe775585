// SPDX-License-Identifier: Apache-2.0
// Subflows, streams and flows.

import { h, table, badge, rate, bytes, ms, say, confirm } from "./dom.js";
import { request } from "./api.js";
import { chart } from "./charts.js";

const states = { up: "good", joining: "warn", silent: "bad", down: "bad" };

// button keeps one button in a cell, for the current item.
function button(cell, text, label, act, item) {
  let b = cell.firstElementChild;
  if (!b) {
    b = cell.appendChild(h("button", { type: "button", class: "small danger", onclick: () => act(b.item) }, text));
    cell.dataset.label = "";
  }
  b.item = item;
  b.setAttribute("aria-label", label);
}

async function sendDelete(path, done) {
  try {
    await request("DELETE", path);
    say(done);
  } catch (e) {
    say(e.message + (e.hint ? ": " + e.hint : ""));
  }
}

// app returns the name of the app of a stream or flow.
function app(s) {
  return s.label && s.program ? `${s.app} (${s.program.split("/").pop()})` : s.app ?? "–";
}

export function traffic({ ask }) {
  const plot = chart("Rates", ["subflows", "devices", "apps", "destinations", "pad"]);
  const cut = async (p) => {
    if (await confirm({ title: `Cut subflow ${p.id} by ${p.device}?`,
      text: "Other subflows take over its bytes, and a new one is opened.", yes: "Cut it", danger: true })) {
      await sendDelete(`/v2/subflows/${encodeURIComponent(p.bond || "-")}/${p.id}`,
        `subflow ${p.id} by ${p.device} is cut`);
      ask();
    }
  };
  const reset = async (s) => {
    if (await confirm({ title: `Reset the connection with ${s.dest}?`, text: "The app's connection ends.",
      yes: "Reset it", danger: true })) {
      await sendDelete(`/v2/streams/${encodeURIComponent(s.bond)}/${s.id}`, `the connection with ${s.dest} is reset`);
      ask();
    }
  };
  const subflows = table("Subflows: connections between primary and server, direct or through a helper. PAD is the " +
    "predicted delivery time of a byte sent now.", [
    { title: "Carried by", of: (p) => `${p.device || p.peer}${p.id ? " " + p.id : ""}` },
    { title: "Kind", of: (p) => p.kind + (p.radio ? ", " + p.radio : "") + (p.metered ? ", metered" : "") +
      (p.tier ? ", " + p.tier : "") },
    { title: "State", of: (p) => badge(p.state, states[p.state] ?? "off") },
    { title: "Down", number: true, of: (p) => (p.relay ? "–" : rate(p.down)) },
    { title: "Up", number: true, of: (p) => (p.relay ? "–" : rate(p.up)) },
    { title: "Carried", number: true, of: (p) => bytes(p.rx_bytes + p.tx_bytes) },
    { title: "PAD", number: true, of: (p) => ms(p.pad_ms) },
    { title: "Round trip", number: true, of: (p) => ms(p.srtt_ms) },
    { title: "Waiting", number: true, of: (p) => bytes(p.backlog_bytes) },
    { title: "Last decision", class: "why", of: (p) => p.last_error || p.why || "" },
    { title: "Change", of: (p, cell) => {
      if (!p.id) return "";
      button(cell, "Cut", `Cut subflow ${p.id} by ${p.device}`, cut, p);
    } },
  ], (p) => p.bond + "/" + p.id + "/" + p.device, "There is no subflow.");
  const streams = table("Streams: connections of apps.", [
    { title: "With", of: (s) => s.dest },
    { title: "App", of: app },
    { title: "Mode", of: (s) => s.mode },
    { title: "Down", number: true, of: (s) => bytes(s.down_bytes) },
    { title: "Up", number: true, of: (s) => bytes(s.up_bytes) },
    { title: "Carried by", of: (s) => s.by },
    { title: "Why", class: "why", of: (s) => s.why },
    { title: "Change", of: (s, cell) => {
      button(cell, "Reset", `Reset the connection ${s.id} with ${s.dest}`, reset, s);
    } },
  ], (s) => s.bond + "/" + s.id, "No app is connected.");
  const flows = table("Datagram flows: UDP sockets of apps.", [
    { title: "Flow", of: (f) => String(f.id) },
    { title: "App", of: app },
    { title: "Down", number: true, of: (f) => bytes(f.down_bytes) },
    { title: "Up", number: true, of: (f) => bytes(f.up_bytes) },
    { title: "Carried by", of: (f) => f.by },
    { title: "Sent", number: true, of: (f) => String(f.sent) },
    { title: "Received", number: true, of: (f) => String(f.received) },
    { title: "Dropped", number: true, of: (f) => String(f.dropped) },
    { title: "Moved", number: true, of: (f) => String(f.moves) },
  ], (f) => f.bond + "/" + f.id, "There is none.");
  const el = h("div", { class: "views" },
    h("section", { class: "card", "aria-labelledby": "h-rates" }, h("h2", { id: "h-rates" }, "Traffic"), plot),
    h("section", { class: "card", "aria-labelledby": "h-subflows" }, h("h2", { id: "h-subflows" }, "Subflows"),
      subflows),
    h("section", { class: "card", "aria-labelledby": "h-streams" }, h("h2", { id: "h-streams" }, "Streams"),
      streams, flows));
  el.className = "stackof";
  el.update = (st) => {
    plot.offer("apps", st.role !== "server" && st.role !== "helper");
    plot.update();
    const rows = [], conns = [], packets = [];
    for (const b of st.bonds) {
      const name = new Map(b.subflows.map((p) => [p.id, `${p.device} ${p.id}`]));
      const why = new Map((b.decisions ?? []).map((d) => [d.subflow ?? 0, d.reason]));
      const toPrimary = st.role === "server";
      for (const p of b.subflows) rows.push({ ...p, bond: b.id, peer: b.peer, why: why.get(p.id),
        down: toPrimary ? p.tx_rate_bps : p.rx_rate_bps, up: toPrimary ? p.rx_rate_bps : p.tx_rate_bps });
      const all = "any subflow";
      for (const s of b.stream_list ?? []) {
        const by = (c) => (c?.subflows?.length ? c.subflows.map((i) => name.get(i) ?? i).join(", ") : all);
        const down = by(s.down), up = by(s.up);
        conns.push({ ...s, bond: b.id, by: down === up ? down : `down ${down}; up ${up}`,
          why: [...new Set([s.down?.reason, s.up?.reason].filter(Boolean))].join("; ") });
      }
      for (const f of b.flow_list ?? []) packets.push({ ...f, bond: b.id,
        by: f.subflow ? [f.subflow, f.second_subflow].filter(Boolean).map((i) => name.get(i) ?? i).join(", ") : "–" });
    }
    for (const f of st.subflows) if (f.bond === "") rows.push({ ...f, relay: true, why: "relayed for " + f.peer });
    subflows.show(rows);
    streams.show(conns);
    flows.hidden = packets.length === 0;
    flows.show(packets);
  };
  return el;
}
