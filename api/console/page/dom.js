// SPDX-License-Identifier: Apache-2.0
// Elements made without parsing: names of devices stay text.

const svgNS = "http://www.w3.org/2000/svg";

function fill(el, attrs, children) {
  for (const [k, v] of Object.entries(attrs ?? {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) el.addEventListener(k.slice(2), v);
    else el.setAttribute(k, v === true ? "" : v);
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

// h makes an HTML element, s an SVG element.
export const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
export const s = (tag, attrs, ...children) => fill(document.createElementNS(svgNS, tag), attrs, children);

// put sets node's text if it differs.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// set sets an attribute, or removes it if value is null.
export function set(el, name, value) {
  if (value === null || value === undefined || value === false) el.removeAttribute(name);
  else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, value);
}

// keyed sets parent's children to those of items, in order. It reuses elements by key, so the focus
// stays where it is. make returns an element whose function `update` is called with the item each
// time.
export function keyed(parent, items, key, make) {
  const old = new Map([...parent.children].map((el) => [el.dataset.key, el]));
  const used = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let el = old.get(k);
    if (!el) {
      el = make(item);
      el.dataset.key = k;
    }
    old.delete(k);
    used.add(el);
    el.update?.(item);
    if (el === at) at = at.nextElementSibling;
    else parent.insertBefore(el, at);
  }
  for (const el of [...parent.children]) if (!used.has(el)) el.remove(); // also one of two with the same key
}

// table makes a table that show fills. Columns have a title, a function that returns a text or
// element for an item, and whether they are numbers. The first column names the row.
export function table(caption, columns, key, none) {
  const body = h("tbody");
  const empty = h("p", { class: "soft" }, none);
  const whole = h("table", { class: "stack" }, h("caption", null, caption),
    h("thead", null, h("tr", null, columns.map((c) => h("th", { scope: "col", class: c.number && "n" }, c.title)))),
    body);
  const el = h("div", { class: "scroll" }, whole, empty);
  el.show = (items) => {
    whole.hidden = items.length === 0;
    empty.hidden = items.length > 0;
    keyed(body, items, key, () => {
      const cells = columns.map((c, i) => h(i === 0 ? "th" : "td",
        { scope: i === 0 && "row", class: c.class ?? (c.number && "n"), "data-label": c.title }));
      const row = h("tr", null, cells);
      row.update = (item) => columns.forEach((c, i) => {
        const v = c.of(item, cells[i]);
        if (v === undefined) return; // of has updated the cell
        if (v instanceof Node) cells[i].replaceChildren(v);
        else put(cells[i], v);
        cells[i].classList.toggle("empty", v === "");
      });
      return row;
    });
    columns.forEach((c, i) => { // an optional column without any value takes no room
      if (!c.optional) return;
      const none = [...body.rows].every((r) => r.cells[i].classList.contains("empty"));
      for (const r of whole.rows) r.cells[i].hidden = none;
    });
  };
  return el;
}

// badge is a word with a colour.
export const badge = (word, kind) => h("span", { class: "badge " + kind }, word);

// say shows a message for a while, also to screen readers.
let sayTimer;
export function say(text) {
  const el = document.getElementById("said");
  put(el, text);
  clearTimeout(sayTimer);
  sayTimer = setTimeout(() => put(el, ""), 6000);
}

// notice shows a success or an error, with a hint.
export function notice(el, kind, text, hint) {
  set(el, "class", "notice " + kind);
  el.hidden = !text;
  if (el.dataset.said === text + "\n" + (hint ?? "")) return; // do not announce it again
  el.dataset.said = text + "\n" + (hint ?? "");
  el.replaceChildren(...(text ? [text, hint ? h("span", { class: "hint" }, hint) : ""] : []));
}

// confirm shows a dialog and resolves to the text entered, true, or null.
export function confirm({ title, text, field, value, yes, danger }) {
  const dialog = document.getElementById("dialog");
  return new Promise((done) => {
    const input = field && h("input", { id: "dialog-field", value: value ?? "", autocomplete: "off", maxlength: 64,
      required: true });
    const back = document.activeElement;
    let answer = null;
    const onsubmit = (e) => {
      e.preventDefault();
      answer = input ? input.value.trim() : true;
      dialog.close();
    };
    const form = h("form", { method: "dialog", onsubmit },
      h("h2", { id: "dialog-title" }, title), text && h("p", null, text),
      input && h("label", { for: "dialog-field" }, field), input,
      h("p", { class: "row" }, h("button", { class: danger ? "danger" : "main", type: "submit" }, yes),
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    dialog.replaceChildren(form);
    dialog.addEventListener("close", () => { back?.focus(); done(answer); }, { once: true });
    dialog.showModal();
    (input ?? form.querySelector("button[type=button]")).focus();
    input?.select();
  });
}

// Quantities for people; KB and MB are 2^10 and 2^20 bytes.
const three = (v) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));

export function rate(bps) {
  if (bps >= 1e9) return three(bps / 1e9) + " Gbit/s";
  if (bps >= 1e6) return three(bps / 1e6) + " Mbit/s";
  return (bps > 0 && bps < 1000 ? "<1" : Math.round(bps / 1e3)) + " kbit/s";
}

export function bytes(n) {
  for (const [size, unit] of [[2 ** 40, "TB"], [2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]]) {
    if (n >= size) return three(n / size) + " " + unit;
  }
  return n + " B";
}

export function joules(j) {
  if (j >= 1000) return three(j / 1000) + " kJ";
  return j >= 1 ? three(j) + " J" : Math.round(j * 1000) + " mJ";
}

export const ms = (v) => (v ? three(v) + " ms" : "–");
export const clock = (t) => new Date(t).toLocaleTimeString([], { hour12: false });

// save downloads a file.
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const a = h("a", { href: url, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
