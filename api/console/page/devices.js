// Devices that this one trusts, and pairing with further ones.

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
    if (name && name !== d.name) await change(() => request("PATCH", "/v2/devices/" + encodeURIComponent(d.name), { name }), `${d.name} is called ${name} now`);
  };
  const pause = (d) => change(() => request("PATCH", "/v2/devices/" + encodeURIComponent(d.name), { paused: !d.paused }), d.paused ? `${d.name} may be used again` : `${d.name} is paused`);
  const revoke = async (d) => {
    const sure = await confirm({ title: `Revoke ${d.name}?`, text: "It is trusted no longer and cut off at once. To have it back, pair it again.", yes: "Revoke " + d.name, danger: true });
    if (sure) await change(() => request("DELETE", "/v2/devices/" + encodeURIComponent(d.name)), `${d.name} is trusted no longer`);
  };
  const list = table("This device and those that it trusts. An ID is short for a device's key, to compare.", [
    { title: "Name", of: (d) => d.name },
    { title: "Roles", of: (d) => d.roles.join(", ") + (d.tier && d.tier !== "primary" ? ", " + d.tier : "") },
    { title: "State", of: (d) => (d.self ? badge("this device", "off") : d.paused ? badge("paused", "warn") : d.online ? badge("there", "good") : badge("away", "warn")) },
    { title: "Suspended", class: "why wide", of: (d) => d.suspended ?? "" },
    { title: "Key", class: "why wide", of: (d) => (d.key_copied ? "two mpbond use it at once: revoke this device, and pair each with a key of its own" : "") },
    { title: "ID", class: "mono wide", of: (d) => d.id },
    { title: "Pipes", number: true, of: (d) => String(d.pipes) },
    { title: "Subflows", number: true, of: (d) => String(d.subflows) },
    { title: "Rate in / out", class: "n wide", number: true, of: (d) => `${rate(d.rx_rate_bps)} / ${rate(d.tx_rate_bps)}` },
    { title: "Bytes in / out", class: "n wide", number: true, of: (d) => `${bytes(d.rx_bytes)} / ${bytes(d.tx_bytes)}` },
    { title: "Change", class: "acts wide", of: (d, cell) => {
      if (d.self) return "";
      if (!cell.firstElementChild) {
        const box = h("span", { class: "row small" });
        box.append(h("button", { type: "button", onclick: () => rename(box.item) }, "Rename"), h("button", { type: "button", onclick: () => pause(box.item) }, "Pause"), h("button", { type: "button", class: "danger", onclick: () => revoke(box.item) }, "Revoke"));
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
    { title: "State", of: (p) => badge(p.state, p.state === "carries" || p.state === "waits" ? "good" : p.state === "retrying" ? "bad" : "off") },
    { title: "Round trip", number: true, of: (p) => (p.rtt_ms ? p.rtt_ms.toFixed(1) + " ms" : "–") },
    { title: "What is wrong", class: "why", of: (p) => [p.error, p.hint].filter(Boolean).join(": ") },
  ], (p) => p.device + " " + p.address + " " + (p.subflow ?? ""), "There is no pipe.");
  const told = facts();
  const pair = pairing(change, problem);
  const pipeCard = h("section", { class: "card", "aria-labelledby": "h-pipes" }, h("h2", { id: "h-pipes" }, "Pipes"), pipes);
  const el = h("div", { class: "stackof" },
    h("section", { class: "card", "aria-labelledby": "h-devices" }, h("h2", { id: "h-devices" }, "Devices"), problem, list),
    told, pair, pipeCard);
  el.update = (st) => {
    list.show(st.devices);
    told.update(st);
    pipes.show(st.pipes);
    pipeCard.hidden = st.role === "server";
    pair.update(st);
  };
  return el;
}

// pairing shows codes, or takes them, as the role is.
function pairing(change) {
  const body = h("div", { class: "stackof" });
  const el = h("section", { class: "card", "aria-labelledby": "h-pair" }, h("h2", { id: "h-pair" }, "Pair a device"), body);
  let kind;
  const parts = [];
  el.update = (st) => {
    const now = st.role;
    if (now !== kind) {
      kind = now;
      parts.length = 0;
      if (now === "primary" || now === "dual") parts.push(enter(change));
      if (now !== "primary") parts.push(invite());
      body.replaceChildren(...parts);
    }
    for (const p of parts) p.update?.();
  };
  return el;
}

// enter takes the codes that other devices show.
function enter(change) {
  const field = h("input", { id: "code", autocomplete: "off", autocapitalize: "characters", spellcheck: "false", required: true, maxlength: 600, placeholder: "K7QF-3M2A@192.168.1.9:7603", "aria-describedby": "code-help" });
  const as = h("select", { id: "pair-as" }, h("option", { value: "" }, "any"), h("option", { value: "helper" }, "helper"), h("option", { value: "server" }, "server"));
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
  } }, h("p", { class: "row" }, h("label", { for: "code" }, "Code that the other device shows"), field, h("label", { for: "pair-as" }, "It is a", as), button),
  h("p", { class: "soft", id: "code-help" }, "Server and helper show one when they start, or by mpbond accept. On one local network a helper needs no part behind the @. Several codes: with spaces between."), became);
  form.update = async () => {
    if (!wait) return;
    const p = await get("/v2/pair").catch(() => null);
    if (!p) return;
    wait = p.state === "running";
    put(button, wait ? "Pairing…" : "Pair");
    became.replaceChildren(...p.devices.map((d) => h("li", { class: d.state === "failed" && "bad" }, h("span", null, d.state),
      h("span", null, d.state === "failed" ? d.error + (d.hint ? ": " + d.hint : "") : d.name ? `${d.name} as ${d.roles.join(", ")}; its ID is ${d.id}` : d.id ?? "…"))));
  };
  return form;
}

// invite shows a code.
function invite() {
  const shown = h("div", { hidden: true });
  const problem = h("p", { role: "alert", hidden: true });
  const button = h("button", { class: "main", type: "button", onclick: async () => {
    try {
      await post("/v2/invitation");
      notice(problem, "bad", "");
      el.update();
    } catch (e) { notice(problem, "bad", e.message, e.hint); }
  } }, "Show a code");
  const el = h("div", { class: "stackof" }, h("p", { class: "row" }, button, h("span", { class: "soft" }, "for mpbond pair on a primary, or its console")), problem, shown);
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
      shown.replaceChildren(img ? h("p", { class: "qr" }, img) : "", h("p", { class: "code", id: "invitation" }, i.code), h("p", { class: "soft" }, "It holds until " + clock(i.until) + ", for one device."));
    } else {
      const told = { paired: `The code paired ${i.device}.`, expired: "The code has expired.", used_up: "The code was tried in vain too often.", replaced: "The code was replaced." };
      shown.replaceChildren(h("p", { class: "notice " + (i.state === "paired" ? "good" : "") }, told[i.state] ?? i.state));
    }
  };
  return el;
}
