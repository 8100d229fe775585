// SPDX-License-Identifier: Apache-2.0
// Sends photos to the helper and shows its state.

const tokenKey = "mpbond-page-token"; // in sessionStorage
const maxUploads = 2; // to the helper, at once
const el = (id) => document.getElementById(id);
const eventTimeout = 40e3; // ms without an event; the helper sends one each 15 s
const helperTimeout = 15 * 60e3; // ms that files wait for a helper that is gone
const retryDelay = 2e3; // ms before a broken upload is retried
const maxBreaks = 5; // of a file while the helper is connected
const own = []; // files of this tab that the helper does not have yet
const tab = crypto.getRandomValues(new Uint32Array(3)).join("-"); // lets the helper recognise files that are sent again
let view = null, next = 0, there = false;

function h(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs ?? {})) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}

const put = (e, text) => { if (e.textContent !== text) e.textContent = text; };

function bytes(n) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= size) return (n / size).toPrecision(3) + " " + unit;
  }
  return n + " B";
}

async function ask(method, path, body, signal) {
  const headers = { Authorization: "Bearer " + sessionStorage.getItem(tokenKey) };
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, credentials: "omit",
    cache: "no-store" });
  if (answer.status === 401) out();
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ??
    "the helper answered with status " + answer.status);
  return answer;
}

// Log-in.

function out() {
  sessionStorage.removeItem(tokenKey);
  there = false;
  el("inside").hidden = true;
  if (el("enter").hidden) {
    el("enter").hidden = false;
    el("code").focus();
  }
  put(el("link"), "the code is needed" + kept());
}

// kept returns a notice about files that wait in this tab.
function kept() {
  const n = own.filter((o) => !o.error).length;
  return n ? `; ${n} not with the helper yet wait here: keep this page open` : "";
}

async function enter(code) {
  put(el("refused"), "");
  try {
    const answer = await ask("POST", "/enter", { code });
    sessionStorage.setItem(tokenKey, (await answer.json()).token);
  } catch (e) {
    out();
    put(el("refused"), e instanceof TypeError ? "The helper does not respond." : e.message);
    return;
  }
  el("code").value = "";
  listen();
}

// Events of the helper.

let listening = false;
async function listen() {
  if (listening) return;
  listening = true;
  let lastEvent = Date.now();
  while (sessionStorage.getItem(tokenKey)) {
    const quiet = new AbortController();
    let end = setTimeout(() => quiet.abort(), eventTimeout);
    try {
      const reader = (await ask("GET", "/events", null, quiet.signal)).body.pipeThrough(new TextDecoderStream())
        .getReader();
      there = true;
      put(el("link"), "connected to the helper");
      const first = !el("enter").hidden;
      el("enter").hidden = true;
      el("inside").hidden = false;
      if (first) el("choose").focus();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(end);
        end = setTimeout(() => quiet.abort(), eventTimeout);
        lastEvent = Date.now();
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        if (parts.length) { show(JSON.parse(parts.at(-1).replace(/^data: /, ""))); feed(); }
      }
    } catch { /* reported below */ }
    clearTimeout(end);
    there = false;
    if (!sessionStorage.getItem(tokenKey)) break;
    if (Date.now() - lastEvent > helperTimeout) {
      for (const o of own) if (o.sent === null) o.error ||= "the helper is gone";
    }
    put(el("link"), "the helper does not respond, retrying" + kept());
    show();
    await new Promise((done) => setTimeout(done, 1000));
  }
  listening = false;
}

const words = { waiting: "with the helper, waiting to be sent", sending: "with the helper, being sent",
  done: "arrived: confirmed by the server", failed: "failed" };

function show(v) {
  view = v ?? view;
  if (!view) return;
  put(el("to"), view.to);
  put(el("note"), view.note ?? "");
  el("note").hidden = !view.note;
  el("now").hidden = !view.now;
  if (view.now) {
    const size = Math.max(1, view.now.size);
    el("total").max = size;
    el("total").value = Math.min(size, view.now.bytes);
    put(el("lines"), view.now.lines.map((l) => l.name + ": " + bytes(l.bytes) +
      (l.down ? ", suspended: " + l.down : ", " + (l.rate_bps / 1e6).toFixed(1) + " Mbit/s")).join("; "));
  }
  const arrived = view.files.filter((f) => f.state === "done").length;
  const failed = view.files.filter((f) => f.state === "failed").length + own.filter((o) => o.error).length;
  const all = view.files.length + own.length;
  put(el("summary"), all ? `${arrived} of ${all} arrived` + (failed ? `, ${failed} failed` : "") : "None yet.");
  list([...own.map((o) => ({ ...o, key: "own" + o.n })), ...view.files.map((f) => ({ ...f, key: f.id })).reverse()]);
}

// list updates the list of files. It keeps existing rows, so that the focus stays.
function list(items) {
  const old = new Map([...el("files").children].map((e) => [e.dataset.key, e]));
  let at = el("files").firstElementChild;
  for (const i of items) {
    const row = old.get(i.key) ?? make(i);
    old.delete(i.key);
    row.update(i);
    if (row === at) at = at.nextElementSibling;
    else el("files").insertBefore(row, at);
  }
  for (const gone of old.values()) gone.remove();
}

function make(i) {
  const name = h("b"), state = h("p"), bar = h("progress", { max: 1 }), tools = h("div", { class: "row" });
  const row = h("li", { "data-key": i.key }, name, state, bar, tools);
  row.update = (i) => {
    put(name, i.name);
    const failed = i.state === "failed" || i.error;
    const text = i.error ? "not with the helper: " + i.error
      : i.n === undefined ? words[i.state]
      : i.sent === null ? "waits in this browser" + (there ? "" : " until the helper is back")
      : "on its way to the helper";
    put(state, bytes(i.size) + " · " + text + (i.note ? ": " + i.note : ""));
    state.className = failed ? "bad" : i.state === "done" ? "good" : "soft";
    bar.hidden = i.n === undefined || i.sent === null || Boolean(i.error);
    bar.value = (i.sent ?? 0) / Math.max(1, i.size);
    bar.setAttribute("aria-label", i.name + " to the helper");
    const can = [failed && "Try again", (failed || i.state === "done") && "Remove"].filter(Boolean);
    if (tools.dataset.can !== can.join()) {
      tools.dataset.can = can.join();
      tools.replaceChildren(...can.map((c) => h("button",
        { type: "button", "aria-label": c + ": " + i.name, onclick: () => act(c, i) }, c)));
    }
  };
  return row;
}

async function act(what, i) {
  const mine = own.find((o) => "own" + o.n === i.key);
  if (mine && what === "Remove") own.splice(own.indexOf(mine), 1);
  else if (mine) Object.assign(mine, { error: "", broke: 0 });
  else await ask(...(what === "Remove" ? ["DELETE", "/files/" + i.id] : ["POST", "/files/" + i.id + "/again"]))
    .catch((e) => put(el("link"), e.message));
  show();
  if (what === "Remove") el("choose").focus();
  feed();
}

// Uploads to the helper.

function add(files) {
  for (const file of files) own.push({ n: next++, name: file.name, size: file.size, file, sent: null, error: "",
    broke: 0, paused: false });
  show();
  feed();
}

function feed() {
  if (!view || !there) return;
  for (const o of own) {
    if (own.filter((x) => x.sent !== null && !x.error).length >= maxUploads) return;
    if (o.sent !== null || o.error || o.paused) continue;
    // wait for free space
    if (o.size > view.room && view.files.some((f) => f.state === "waiting" || f.state === "sending")) continue;
    give(o);
  }
}

function give(o) {
  o.sent = 0;
  const x = new XMLHttpRequest(); // fetch does not report upload progress
  const end = (error) => {
    o.sent = null;
    if (error) o.error = error;
    else own.splice(own.indexOf(o), 1);
    show();
    feed();
  };
  const broke = () => { // the helper is gone, which events will show, or the file is unreadable
    o.sent = null;
    o.paused = true;
    show();
    setTimeout(() => {
      o.paused = false;
      if (there && ++o.broke >= maxBreaks) o.error = "the connection to the helper failed, or the file cannot be read";
      show();
      feed();
    }, retryDelay);
  };
  x.open("POST", "/files?name=" + encodeURIComponent(o.name) + "&key=" + tab + "." + o.n);
  x.setRequestHeader("Authorization", "Bearer " + sessionStorage.getItem(tokenKey));
  x.setRequestHeader("Content-Type", "application/octet-stream");
  x.upload.onprogress = (e) => { o.sent = e.loaded; show(); };
  x.onload = () => {
    if (x.status === 204) return end("");
    if (x.status === 401) { o.sent = null; return out(); } // wait for the code
    let said = "the helper answered with status " + x.status;
    try { said = JSON.parse(x.responseText).error; } catch { /* keep the status */ }
    end(said);
  };
  x.onerror = x.onabort = x.ontimeout = broke;
  x.send(o.file);
}

el("enter").addEventListener("submit", (e) => { e.preventDefault(); enter(el("code").value); });
el("choose").addEventListener("change", () => { add(el("choose").files); el("choose").value = ""; });
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (e) => {
    e.preventDefault(); // otherwise the browser would open the file
    el("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && !el("inside").hidden) add([...e.dataTransfer.files]);
  });
}
addEventListener("beforeunload", (e) => { if (own.some((o) => !o.error)) e.preventDefault(); });

const given = /^#code=([\w-]+)$/.exec(location.hash);
if (given) {
  history.replaceState(null, "", location.pathname);
  enter(given[1]);
} else if (sessionStorage.getItem(tokenKey)) listen();
else out();
