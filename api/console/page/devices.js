// SPDX-License-Identifier: Apache-2.0
// The trusted devices, and pairing with others.

import { h, table, badge, rate, bytes, put, say, confirm, notice, clock } from "./dom.js";
import { facts } from "./facts.js";
import { get, post, request } from "./api.js";

export function devices({ ask }) {
  const problem = h("p", { role: "alert", hidden: true });
  async function change(act, done) {
    try {
      await act();
      notice(problem, "good", "");
      say(done);
      ask();
    } catch (e) {
      notice(problem, "bad", e.message, e.hint);
    }
  }
  const rename = async (d) => {
    const name = await confirm({ title: `Rename ${d.name}`, field: "New name", value: d.name, yes: "Rename" });
    if (name && name !== d.name) await change(
      () => request("PATCH", "/v2/devices/" + encodeURIComponent(d.name), { name }), `${d.name} is now called ${name}`);
  };
  const pause = (d) => change(
    () => request("PATCH", "/v2/devices/" + encodeURIComponent(d.name), { paused: !d.paused }),
    d.paused ? `${d.name} may be used again` : `${d.name} is paused`);
  const revoke = async (d) => {
    const sure = await confirm({ title: `Revoke ${d.name}?`,
      text: "It is no longer trusted, and its connections end at once. To use it again, pair it again.",
      yes: "Revoke " + d.name, danger: true });
    if (sure) await change(() => request("DELETE", "/v2/devices/" + encodeURIComponent(d.name)),
      `${d.name} is no longer trusted`);
  };
  const list = table("This device and the trusted ones. " +
    "Compare devices by their IDs, which are short for their keys.", [
    { title: "Name", of: (d) => d.name },
    { title: "Roles", of: (d) => d.roles.join(", ") + (d.tier && d.tier !== "primary" ? ", " + d.tier : "") },
    { title: "State", of: (d) => (d.self ? badge("this device", "off") : d.paused ? badge("paused", "warn")
      : d.online ? badge("connected", "good") : badge("away", "warn")) },
    { title: "Suspended", optional: true, class: "why wide", of: (d) => d.suspended ?? "" },
    { title: "Key", optional: true, class: "why wide",
      of: (d) => (d.key_copied
        ? "two running mpbond use it: revoke this device, and pair each device with its own key" : "") },
    { title: "ID", class: "mono wide", of: (d) => d.id },
    { title: "Pipes", number: true, of: (d) => String(d.pipes) },
    { title: "Subflows", number: true, of: (d) => String(d.subflows) },
    { title: "Rate in / out", class: "n wide", number: true,
      of: (d) => `${rate(d.rx_rate_bps)} / ${rate(d.tx_rate_bps)}` },
    { title: "Bytes in / out", class: "n wide", number: true,
      of: (d) => `${bytes(d.rx_bytes)} / ${bytes(d.tx_bytes)}` },
    { title: "Change", class: "acts wide", of: (d, cell) => {
      if (d.self) return "";
      if (!cell.firstElementChild) {
        const box = h("span", { class: "row small" });
        box.append(h("button", { type: "button", onclick: () => rename(box.item) }, "Rename"),
          h("button", { type: "button", onclick: () => pause(box.item) }, "Pause"),
          h("button", { type: "button", class: "danger", onclick: () => revoke(box.item) }, "Revoke"));
        cell.append(box);
      }
      const box = cell.firstElementChild;
      box.item = d;
      box.children[0].setAttribute("aria-label", "Rename " + d.name);
      put(box.children[1], d.paused ? "Resume" : "Pause");
      box.children[1].setAttribute("aria-label", (d.paused ? "Resume " : "Pause ") + d.name);
      box.children[1].hidden = !d.roles.some((r) => r !== "server");
      box.children[2].setAttribute("aria-label", "Revoke " + d.name);
    } },
  ], (d) => d.id, "There is none.");
  list.firstElementChild.classList.add("pairs");
  const pipes = table("Pipes: local links between primary and helper.", [
    { title: "With", of: (p) => p.device },
    { title: "At", class: "mono", of: (p) => p.address },
    { title: "Over", of: (p) => p.via ?? "" },
    { title: "State", of: (p) => badge(p.state,
      p.state === "carries" || p.state === "waits" ? "good" : p.state === "retrying" ? "bad" : "off") },
    { title: "Round trip", number: true, of: (p) => (p.rtt_ms ? p.rtt_ms.toFixed(1) + " ms" : "–") },
    { title: "What is wrong", class: "why", of: (p) => [p.error, p.hint].filter(Boolean).join(": ") },
  ], (p) => p.device + " " + p.address + " " + (p.subflow ?? ""), "There is no pipe.");
  const factsCard = facts();
  const pair = pairing(change, problem);
  const pipeCard = h("section", { class: "card", "aria-labelledby": "h-pipes" }, h("h2", { id: "h-pipes" }, "Pipes"),
    pipes);
  const el = h("div", { class: "stackof" },
    h("section", { class: "card", "aria-labelledby": "h-devices" }, h("h2", { id: "h-devices" }, "Devices"),
      problem, list),
    factsCard, pair, pipeCard);
  el.update = (st) => {
    list.show(st.devices);
    factsCard.update(st);
    pipes.show(st.pipes);
    pipeCard.hidden = st.role === "server";
    pair.update(st);
  };
  return el;
}

// pairing shows codes or accepts them, depending on the role.
function pairing(change) {
  const body = h("div", { class: "stackof" });
  const el = h("section", { class: "card", "aria-labelledby": "h-pair" }, h("h2", { id: "h-pair" }, "Pair a device"),
    body);
  let kind;
  const parts = [];
  el.update = (st) => {
    const now = st.role;
    if (now !== kind) {
      kind = now;
      parts.length = 0;
      if (now === "primary" || now === "dual") parts.push(pairForm(change));
      if (now !== "primary") parts.push(invitation());
      body.replaceChildren(...parts);
    }
    for (const p of parts) p.update?.();
  };
  return el;
}

// pairForm accepts codes of other devices.
function pairForm(change) {
  const field = h("input", { id: "code", autocomplete: "off", autocapitalize: "characters", spellcheck: "false",
    required: true, maxlength: 600, placeholder: "K7QF-3M2A@192.168.1.9:7603", "aria-describedby": "code-help" });
  const as = h("select", { id: "pair-as" }, h("option", { value: "" }, "any"),
    h("option", { value: "helper" }, "helper"), h("option", { value: "server" }, "server"));
  const button = h("button", { class: "main", type: "submit" }, "Pair");
  const became = h("ul", { class: "log", id: "pairing", "aria-live": "polite" });
  let wait = false;
  const form = h("form", { onsubmit: async (e) => {
    e.preventDefault();
    await change(async () => {
      const body = { codes: field.value.trim().split(/[\s,]+/) };
      if (as.value) body.as = as.value;
      await post("/v2/pair", body);
      field.value = "";
      wait = true;
      put(button, "Pairing…");
    }, "calling");
    form.update();
  } }, h("p", { class: "row" }, h("label", { for: "code" }, "Code that the other device shows"), field,
  h("label", { for: "pair-as" }, "It is a", as), button),
  h("p", { class: "soft", id: "code-help" }, "Server and helper show a code when they start, or with mpbond accept. " +
    "On one local network you can omit the part from @ on for a helper. Separate several codes with spaces."), became);
  form.update = async () => {
    if (!wait) return;
    const p = await get("/v2/pair").catch(() => null);
    if (!p) return;
    wait = p.state === "running";
    put(button, wait ? "Pairing…" : "Pair");
    became.replaceChildren(...p.devices.map((d) => h("li", { class: d.state === "failed" && "bad" },
      h("span", null, d.state),
      h("span", null, d.state === "failed" ? d.error + (d.hint ? ": " + d.hint : "")
        : d.name ? `${d.name} as ${d.roles.join(", ")}; its ID is ${d.id}` : d.id ?? "…"))));
  };
  return form;
}

// invitation shows a code.
function invitation() {
  const shown = h("div", { hidden: true });
  const problem = h("p", { role: "alert", hidden: true });
  const button = h("button", { class: "main", type: "button", onclick: async () => {
    try {
      await post("/v2/invitation");
      notice(problem, "bad", "");
      el.update();
    } catch (e) { notice(problem, "bad", e.message, e.hint); }
  } }, "Show a code");
  const el = h("div", { class: "stackof" },
    h("p", { class: "row" }, button, h("span", { class: "soft" }, "for mpbond pair on a primary, or its console")),
    problem, shown);
  let now = "";
  el.update = async () => {
    const i = await get("/v2/invitation").catch(() => ({ state: "" }));
    const key = i.state + i.code;
    if (key === now) return;
    now = key;
    put(button, i.state === "open" ? "Show another code" : "Show a code");
    shown.hidden = !i.state;
    if (i.state === "open") {
      const picture = await request("GET", "/v2/invitation/svg").then((a) => a.blob(), () => null);
      const img = picture && h("img", { alt: "QR code of " + i.code, src: URL.createObjectURL(picture) });
      shown.replaceChildren(img ? h("p", { class: "qr" }, img) : "",
        h("p", { class: "code", id: "invitation" }, i.code),
        h("p", { class: "soft" }, "Valid until " + clock(i.until) + ", for one device."));
    } else {
      const states = { paired: `The code paired ${i.device}.`, expired: "The code has expired.",
        used_up: "Too many failed attempts with the code.", replaced: "The code was replaced." };
      shown.replaceChildren(h("p", { class: "notice " + (i.state === "paired" ? "good" : "") },
        states[i.state] ?? i.state));
    }
  };
  return el;
}
