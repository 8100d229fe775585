// The policy file: an editor that says at once whether a text could be used, the
// rules in force, and what would happen to a connection.

import { h, put, set, table, notice, say } from "./dom.js";
import { get, post, request } from "./api.js";

const checkAfter = 400; // ms without a key
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

// told is an error with its line, and meant what may help.
const told = (e) => (e.line && !e.text.includes(`:${e.line}:`) ? `line ${e.line}: ` : "") + e.text;
const meant = (e) => (e.nearest ? `did you mean ${e.nearest}?` : e.hint ?? "");

export function policy({ ask }) {
  const about = h("p", { class: "soft" });
  const refused = h("p", { hidden: true });
  const label = h("label", { for: "policy-text" });
  const verdict = h("p", { id: "policy-verdict", role: "status", hidden: true });
  const text = h("textarea", { id: "policy-text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", readonly: true, "aria-describedby": "policy-verdict", oninput: () => typed() });
  const go = h("button", { type: "button", hidden: true, onclick: () => mark(bad.line) }, "Go to line");
  const save = h("button", { type: "button", class: "main", onclick: () => put1() }, "Put in force");
  const discard = h("button", { type: "button", onclick: () => load(known.newer ?? known) }, "Discard changes");
  const sample = h("button", { type: "button", onclick: () => { text.value = example; typed(); text.focus(); } }, "Insert an example");
  let known = null, bad = null, timer, asked = 0;

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
  // showVerdict says whether the text could be used; e is why not.
  function showVerdict(e, good) {
    bad = e;
    set(text, "aria-invalid", e ? "true" : null);
    go.hidden = !e?.line;
    put(go, "Go to line " + e?.line);
    if (e) notice(verdict, "bad", told(e), meant(e));
    else notice(verdict, "good", good);
  }
  const broken = (e) => ({ text: e.message, line: e.line, column: e.column, nearest: e.nearest, hint: e.hint });
  function typed() {
    buttons();
    clearTimeout(timer);
    timer = setTimeout(check, checkAfter);
  }
  async function check() {
    const n = ++asked;
    try {
      const a = await post("/v2/policy/check", { text: text.value });
      if (n === asked) showVerdict(null, dirty() ? `It can be used: ${a.rules} ${a.rules === 1 ? "rule" : "rules"}. Not in force yet.` : "");
    } catch (e) {
      if (n === asked) showVerdict(broken(e));
    }
  }
  async function put1() {
    clearTimeout(timer);
    asked++;
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
  // mark puts the cursor on a line.
  function mark(line) {
    const lines = text.value.split("\n");
    const at = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
    text.focus();
    text.setSelectionRange(at, at + (lines[line - 1] ?? "").length);
    text.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(text).lineHeight));
  }

  const rules = table("Rules in force: the first that matches decides.", [
    { title: "Rule", of: (r) => r.name },
    { title: "When", class: "why", of: (r) => Object.entries(r.when ?? {}).map(([k, v]) => `${k} ${v.join(", ")}`).join("; ") || "always" },
    { title: "Then", of: (r) => [r.mode, r.device && "by " + r.device.join(", "), r.pipe && "over " + r.pipe.join(", "), r.priority && r.priority !== "normal" && r.priority + " priority", r.weight > 1 && "weight " + r.weight].filter(Boolean).join(", ") },
    { title: "Now", class: "why", of: (r) => r.reason },
    { title: "Matched", number: true, of: (r) => String(r.matched) },
  ], (r) => r.name + "/" + (r.line ?? ""), "There are no rules: what no rule matches is treated as below.");
  const otherwise = h("p", { class: "soft" });
  function show(p) {
    rules.show(p.rules);
    put(otherwise, `What no rule matches is ${p.default === "deny" ? "blocked" : "allowed"}. Blocked so far: ${p.blocked}; around the bond: ${p.direct}.`);
    put(about, (p.version ? p.file : `${p.file}, which is not there yet`) + (p.read_only ? ". This mpbond may not write it: change it by hand, which counts at once. Here a text can be tried." : ""));
    save.disabled = p.read_only === true;
    notice(refused, "bad", p.refused ? "The file as it is now is not in force: " + told(p.refused) : "", p.refused ? meant(p.refused) : "");
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
      notice(answer, "good", `${a.rule ? `Rule “${a.rule}”` : "No rule"}: ${a.verdict.mode}. ${a.verdict.reason}`, dirty() ? "by the text above, which is not in force" : "");
    } catch (e) { notice(answer, "bad", e.message, e.hint); }
  } }, h("p", { class: "row" }, 
    h("span", { class: "field" }, h("label", { for: "flow-host" }, "Host"), host), h("span", { class: "field short" }, h("label", { for: "flow-port" }, "Port"), port), h("span", { class: "field" }, h("label", { for: "flow-app" }, "App"), app),
     h("button", { type: "submit" }, "Ask")));

  const editor = h("section", { class: "card", "aria-labelledby": "h-policy" }, h("h2", { id: "h-policy" }, "Policy"), about, refused,
    label, text, verdict,
    h("p", { class: "row" }, go, save, discard, sample));
  const rest = [
    h("section", { class: "card", "aria-labelledby": "h-why" }, h("h2", { id: "h-why" }, "What happens to a connection?"), why, answer),
    h("section", { class: "card", "aria-labelledby": "h-rules" }, h("h2", { id: "h-rules" }, "In force"), rules, otherwise)];
  const none = h("section", { class: "card", hidden: true, "aria-labelledby": "h-nopolicy" }, h("h2", { id: "h-nopolicy" }, "Policy"), h("p", null, "A server has no policy: it is kept at primary and helper. Open the console there."));
  const el = h("div", { class: "stackof" }, none, editor, rest);
  el.update = async (st) => {
    const here = st.role !== "server", apps = here && st.role !== "helper";
    none.hidden = here;
    editor.hidden = !here;
    for (const part of rest) part.hidden = !apps;
    put(label, apps ? "Rules for apps and destinations, and tables of devices, as TOML" : "Tables of devices, as TOML; rules for apps count at a primary");
    if (!here) return;
    let p;
    try {
      p = await get("/v2/policy");
    } catch (e) {
      return notice(refused, "bad", e.message, e.hint);
    }
    if (!known || (p.version !== known.version && !dirty())) load(p);
    else if (p.version !== known.version && !bad) showVerdict({ text: "the file was changed elsewhere meanwhile", hint: "discard your changes to see it" });
    if (p.version !== known.version) known = { ...known, newer: p };
    show(p);
  };
  return el;
}
