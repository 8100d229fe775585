// SPDX-License-Identifier: Apache-2.0
// The policy: an editor that checks the text as it is typed, the rules in force, and what would
// happen to a connection.

import { h, put, set, table, notice, say } from "./dom.js";
import { get, post, request } from "./api.js";

const checkAfter = 400; // ms after the last key
const example = `default = "allow"

[[rule]]
name = "calls"
domain = ["meet.example.org"]
mode = "latency"

[[rule]]
name = "no updates on the road"
app = ["packagekitd"]
mode = "block"
`;

// errorText returns an error with its line, errorHint what may help.
const errorText = (e) => (e.line && !e.text.includes(`:${e.line}:`) ? `line ${e.line}: ` : "") + e.text;
const errorHint = (e) => (e.nearest ? `did you mean ${e.nearest}?` : e.hint ?? "");

export function policy({ ask }) {
  const about = h("p", { class: "soft" });
  const refused = h("p", { hidden: true });
  const label = h("label", { for: "policy-text" });
  const verdict = h("p", { id: "policy-verdict", role: "status", hidden: true });
  const text = h("textarea", { id: "policy-text", spellcheck: "false", autocapitalize: "off", autocomplete: "off",
    wrap: "off", readonly: true, "aria-describedby": "policy-verdict", oninput: () => scheduleCheck() });
  const go = h("button", { type: "button", hidden: true, onclick: () => mark(bad.line) }, "Go to line");
  const save = h("button", { type: "button", class: "main", onclick: () => putInForce() }, "Put in force");
  const discard = h("button", { type: "button", onclick: () => load(known.newer ?? known) }, "Discard changes");
  const insert = () => { text.value = example; scheduleCheck(); text.focus(); };
  const sample = h("button", { type: "button", onclick: insert }, "Insert an example");
  let known = null, bad = null, timer, checks = 0;

  const dirty = () => known && text.value !== known.text;
  function buttons() {
    discard.disabled = !dirty();
    sample.hidden = text.value !== "";
  }
  function load(p) {
    known = p;
    text.value = p.text;
    text.readOnly = false;
    showVerdict(null, "");
    buttons();
  }
  // showVerdict shows whether the text is usable; e is why not.
  function showVerdict(e, good) {
    bad = e;
    set(text, "aria-invalid", e ? "true" : null);
    go.hidden = !e?.line;
    put(go, "Go to line " + e?.line);
    if (e) notice(verdict, "bad", errorText(e), errorHint(e));
    else notice(verdict, "good", good);
  }
  const broken = (e) => ({ text: e.message, line: e.line, column: e.column, nearest: e.nearest, hint: e.hint });
  function scheduleCheck() {
    buttons();
    clearTimeout(timer);
    timer = setTimeout(check, checkAfter);
  }
  async function check() {
    const n = ++checks;
    try {
      const a = await post("/v2/policy/check", { text: text.value });
      if (n === checks) showVerdict(null,
        dirty() ? `Usable: ${a.rules} ${a.rules === 1 ? "rule" : "rules"}. Not in force yet.` : "");
    } catch (e) {
      if (n === checks) showVerdict(broken(e));
    }
  }
  async function putInForce() {
    clearTimeout(timer);
    checks++;
    try {
      const p = await (await request("PUT", "/v2/policy", { text: text.value, version: known.version })).json();
      load(p);
      showVerdict(null, `In force: ${p.rules.length} ${p.rules.length === 1 ? "rule" : "rules"}.`);
      say("the policy is in force");
      show(p);
      ask();
    } catch (e) {
      showVerdict(broken(e));
    }
  }
  // mark selects a line.
  function mark(line) {
    const lines = text.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
    text.focus();
    text.setSelectionRange(at, at + (lines[line - 1] ?? "").length);
    text.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(text).lineHeight));
  }

  const rules = table("Rules in force: the first that matches decides.", [
    { title: "Rule", of: (r) => r.name },
    { title: "When", class: "why",
      of: (r) => Object.entries(r.when ?? {}).map(([k, v]) => `${k} ${v.join(", ")}`).join("; ") || "always" },
    { title: "Then", of: (r) => [r.mode, r.device && "by " + r.device.join(", "), r.pipe && "over " + r.pipe.join(", "),
      r.priority && r.priority !== "normal" && r.priority + " priority",
      r.weight > 1 && "weight " + r.weight].filter(Boolean).join(", ") },
    { title: "Now", class: "why", of: (r) => r.reason },
    { title: "Matched", number: true, of: (r) => String(r.matched) },
  ], (r) => r.name + "/" + (r.line ?? ""), "There are no rules; the default below applies.");
  const otherwise = h("p", { class: "soft" });
  function show(p) {
    rules.show(p.rules);
    put(otherwise, `Connections that no rule matches are ${p.default === "deny" ? "blocked" : "allowed"}. ` +
      `Blocked so far: ${p.blocked}; outside the bond: ${p.direct}.`);
    put(about, (p.version ? p.file : `${p.file}, which does not exist yet`) +
      (p.read_only ? ". mpbond must not write it: change it by hand, which takes effect at once. " +
        "You can check a text here." : ""));
    save.disabled = p.read_only === true;
    notice(refused, "bad", p.refused ? "The current file is not in force: " + errorText(p.refused) : "",
      p.refused ? errorHint(p.refused) : "");
  }

  const host = h("input", { id: "flow-host", required: true, maxlength: 255, placeholder: "example.org" });
  const port = h("input", { id: "flow-port", required: true, type: "number", min: 1, max: 65535, value: 443 });
  const app = h("input", { id: "flow-app", maxlength: 4096, placeholder: "/usr/bin/curl" });
  const answer = h("p", { id: "flow-answer", role: "status", hidden: true });
  const why = h("form", { onsubmit: async (e) => {
    e.preventDefault();
    try {
      const body = { flow: { host: host.value.trim(), port: Number(port.value) } };
      if (app.value.trim()) body.flow.app = app.value.trim();
      if (dirty()) body.text = text.value;
      const a = await post("/v2/policy/check", body);
      notice(answer, "good", `${a.rule ? `Rule “${a.rule}”` : "No rule"}: ${a.verdict.mode}. ${a.verdict.reason}`,
        dirty() ? "by the text above, which is not in force" : "");
    } catch (e) { notice(answer, "bad", e.message, e.hint); }
  } }, h("p", { class: "row" }, 
    h("span", { class: "field" }, h("label", { for: "flow-host" }, "Host"), host),
    h("span", { class: "field short" }, h("label", { for: "flow-port" }, "Port"), port),
    h("span", { class: "field" }, h("label", { for: "flow-app" }, "App"), app),
     h("button", { type: "submit" }, "Ask")));

  const editor = h("section", { class: "card", "aria-labelledby": "h-policy" }, h("h2", { id: "h-policy" }, "Policy"),
    about, refused,
    label, text, verdict,
    h("p", { class: "row" }, go, save, discard, sample));
  const rest = [
    h("section", { class: "card", "aria-labelledby": "h-why" },
      h("h2", { id: "h-why" }, "What happens to a connection?"), why, answer),
    h("section", { class: "card", "aria-labelledby": "h-rules" }, h("h2", { id: "h-rules" }, "In force"),
      rules, otherwise)];
  const none = h("section", { class: "card", hidden: true, "aria-labelledby": "h-nopolicy" },
    h("h2", { id: "h-nopolicy" }, "Policy"),
    h("p", null, "A server has no policy. Open the console of a primary or helper."));
  const el = h("div", { class: "stackof" }, none, editor, rest);
  el.update = async (st) => {
    const here = st.role !== "server", apps = here && st.role !== "helper";
    none.hidden = here;
    editor.hidden = !here;
    for (const part of rest) part.hidden = !apps;
    put(label, apps ? "Rules for apps and destinations, and device tables, as TOML"
      : "Device tables, as TOML; rules for apps apply at a primary");
    if (!here) return;
    let p;
    try {
      p = await get("/v2/policy");
    } catch (e) {
      return notice(refused, "bad", e.message, e.hint);
    }
    if (!known || (p.version !== known.version && !dirty())) load(p);
    else if (p.version !== known.version && !bad) showVerdict(
      { text: "the file has changed meanwhile", hint: "discard your changes to see it" });
    if (p.version !== known.version) known = { ...known, newer: p };
    show(p);
  };
  return el;
}
