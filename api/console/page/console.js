// SPDX-License-Identifier: Apache-2.0
// The console: shows the selected view and refreshes it each second while the page is visible.

import { h, put, set, say, notice } from "./dom.js";
import { takeToken, keepToken, dropToken, get, events, Problem } from "./api.js";
import { overview } from "./overview.js";
import { devices } from "./devices.js";
import { traffic } from "./traffic.js";
import { policy } from "./policy.js";
import { advice } from "./advice.js";
import { usage } from "./usage.js";
import { changes } from "./changes.js";

const refreshInterval = 1000; // ms between refreshes
const makers = { overview, devices, traffic, policy, advice, usage, events: changes };
const views = {}; // those opened so far
const main = document.getElementById("main"), nav = document.getElementById("nav");
const state = document.getElementById("state"), whoami = document.getElementById("whoami");
let shown = "", timer, listening;

// showState shows whether mpbond answers.
function showState(ok, text) {
  set(state, "class", "state " + (ok ? "live" : "dead"));
  put(state, text);
}

// show shows the view that the address names.
function show(byPerson) {
  const name = makers[location.hash.slice(1)] ? location.hash.slice(1) : "overview";
  for (const a of nav.children) set(a, "aria-current", a.hash === "#" + name ? "page" : null);
  if (name === shown) return;
  shown = name;
  views[name] ??= makers[name]({ ask: refresh });
  main.replaceChildren(views[name]);
  document.title = nav.querySelector("[aria-current]").textContent + " – mpbond";
  if (byPerson) {
    const head = [...main.querySelectorAll("h2")].find((e) => e.offsetParent); // the first visible one
    head.setAttribute("tabindex", "-1");
    head.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  refresh();
}

let last, asking = false;

// refresh requests the status and shows it.
async function refresh() {
  clearTimeout(timer);
  if (document.hidden || !shown) return;
  if (!asking) {
    asking = true;
    try {
      const st = await get("/v2/status?why=1");
      st.subflows = st.helper ? await get("/v2/subflows") : [];
      updateRelayedRate(st);
      put(whoami, `${st.name} · ${st.role}`);
      showState(true, "live");
      last = st;
      views[shown].update(st);
    } catch (e) {
      if (!(e instanceof Problem)) throw e;
      if (e.status === 401) return login("The token is wrong for this mpbond.");
      showState(false, e.message);
    } finally {
      asking = false;
    }
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, refreshInterval);
}

// updateRelayedRate computes the rate of what a helper relays from its bytes.
let before;
function updateRelayedRate(st) {
  if (!st.helper) return;
  const now = { t: performance.now(), down: 0, up: 0 };
  for (const f of st.subflows) if (f.bond === "") { now.down += f.rx_bytes; now.up += f.tx_bytes; }
  const per = (k) => (before && now.t > before.t ? Math.max(0, ((now[k] - before[k]) * 8000) / (now.t - before.t)) : 0);
  st.relayed = { down: per("down"), up: per("up") };
  before = now;
}

// listen reads events while the page is visible.
async function listen() {
  if (listening || document.hidden || !shown) return;
  const end = (listening = new AbortController());
  while (!end.signal.aborted) {
    try {
      await events(changes.seq ?? 0, (kind, e) => {
        if (kind === "position") return changes.position(e);
        const isNew = changes.take(e, last);
        if (isNew && e.kind !== "stream_open" && e.kind !== "stream_close" && e.kind !== "flow_open" &&
          e.kind !== "flow_close") {
          if (["device_up", "device_down", "subflow_down", "subflow_silent"].includes(e.kind)) say(changes.describe(e));
          refresh();
        }
      }, end.signal);
    } catch { /* mpbond or the network has ended: refresh shows it */ }
    if (!end.signal.aborted) await new Promise((r) => setTimeout(r, 2 * refreshInterval));
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    listening?.abort();
    listening = undefined;
  } else {
    listen();
    refresh();
  }
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) {
    takeToken();
    begin();
  } else if (location.hash !== "#main" && shown) {
    show(true);
  }
});

// login asks for the token.
function login(why) {
  listening?.abort();
  listening = undefined;
  shown = "";
  dropToken();
  nav.hidden = true;
  showState(false, "no token");
  const problem = h("p", { role: "alert", hidden: true });
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const form = h("form", { onsubmit: (e) => { e.preventDefault(); keepToken(field.value.trim()); begin(); } },
    h("p", { class: "row" }, h("label", { for: "token" }, "Token"), field,
      h("button", { class: "main", type: "submit" }, "Open")));
  main.replaceChildren(h("section", { class: "card" }, h("h2", null, "Enter the token"),
    h("p", null, "Run ", h("code", null, "mpbond console"),
      " on this machine and open the address that it prints, or paste the token of the file ",
      h("code", null, "api.token"), " beside the device key."), problem, form));
  notice(problem, "bad", why);
  field.focus();
}

function begin() {
  shown = "";
  nav.hidden = false;
  show(false);
  listen();
}

if (takeToken()) begin();
else login("");
