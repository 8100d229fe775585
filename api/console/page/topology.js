// The picture of the devices: the server above, primaries in the middle, helpers
// beside them, links as thick as their rate.

import { battery } from "./facts.js";
import { h, s, put, set, keyed, rate, save } from "./dom.js";

const rowServer = 84, rowPrimary = 262, nextHelpers = 118;
const thin = 2, thick = 16; // of a link, by its share of the quickest one

// model is what a status says about devices and links. It is for tests, too.
export function model(st) {
  const nodes = new Map(), links = new Map();
  const known = new Map(st.devices.map((d) => [d.name, d]));
  const node = (role, name, more) => {
    const id = role + " " + name;
    if (!nodes.has(id)) nodes.set(id, { id, role, name, online: true, self: false, ...more });
    return id;
  };
  const link = (from, to, kind, more) => { // a device may have several bonds over it
    const id = from + ">" + to, paths = [...(links.get(id)?.paths ?? []), ...more];
    const up = paths.filter((p) => p.state === "up");
    const sum = (f) => paths.reduce((n, p) => n + (p[f] || 0), 0);
    const [down, upward] = st.role === "server" ? ["tx_rate_bps", "rx_rate_bps"] : ["rx_rate_bps", "tx_rate_bps"];
    const state = up.length > 0 ? "up" : paths.some((p) => p.state === "joining") ? "joining" : "cut";
    links.set(id, { id, from, to, kind, state, down: sum(down), up: sum(upward), paths });
  };
  const bond = (b, primary, server, self) => {
    const by = new Map();
    for (const p of b.paths) {
      const k = p.kind === "helped" ? p.device : "";
      by.set(k, [...(by.get(k) ?? []), p]);
    }
    for (const [helper, paths] of by) {
      const real = paths.filter((p) => p.id !== 0);
      if (helper === "") {
        link(primary, server, "direct", real.length ? real : paths);
        continue;
      }
      const id = node("helper", helper);
      link(primary, id, "helped", real);
      link(id, server, "helped", real);
    }
  };
  const lends = st.role === "helper" || st.role === "dual";
  if (st.role === "server") {
    const me = node("server", st.name, { self: true });
    for (const b of st.bonds) bond(b, node("primary", b.peer), me);
  }
  if (st.role === "primary" || st.role === "dual") {
    const me = node("primary", st.name, { self: true });
    for (const b of st.bonds) bond(b, me, node("server", b.peer || "server", { online: b.paths.some((p) => p.state === "up") }));
  }
  if (lends && st.helper) {
    const me = st.role === "dual" ? node("primary", st.name) : node("helper", st.name, { self: true });
    if (st.helper.primary) {
      const paths = [{ state: "up", rx_rate_bps: st.relayed?.down ?? 0, tx_rate_bps: st.relayed?.up ?? 0, id: 1, kind: "helped" }];
      const them = node("primary", st.helper.primary);
      link(them, me, "helped", paths);
      if (st.helper.subflows > 0 && st.role === "helper") link(me, node("server", st.helper.server || "server"), "helped", paths);
    }
  }
  for (const d of known.values()) { // those that are away
    if (d.self) continue;
    for (const role of d.roles) {
      if ([...nodes.values()].some((n) => n.name === d.name)) continue;
      node(role, d.name, { online: d.online });
    }
  }
  for (const n of nodes.values()) n.battery = battery(known.get(n.name)?.facts);
  return { nodes: [...nodes.values()], links: [...links.values()] };
}

// place gives each node its place in a picture of that width, and tells the height.
function place(nodes, width) {
  const of = (role) => nodes.filter((n) => n.role === role);
  const row = (list, y) => list.forEach((n, i) => { n.x = (width * (i + 1)) / (list.length + 1); n.y = y; });
  const primaries = of("primary"), helpers = of("helper");
  row(of("server"), rowServer);
  row(primaries, rowPrimary);
  if (primaries.length > 1) {
    row(helpers, rowPrimary + 150);
    return rowPrimary + (helpers.length ? 150 : 0) + 80;
  }
  helpers.forEach((n, i) => { // left and right in turn, two steps deep
    const step = Math.floor(i / 2), margin = width < 500 ? 44 : 84;
    n.x = i % 2 ? width - margin - (step % 2) * 40 : margin + (step % 2) * 40;
    n.y = rowPrimary - 6 + step * nextHelpers;
  });
  return rowPrimary + 80 + Math.max(0, Math.ceil(helpers.length / 2) - 1) * nextHelpers;
}

const glyphs = {
  server: "M-10-13h20v10h-20zM-10 3h20v10h-20zM-5-8h1M-5 8h1",
  primary: "M-12-9h24v15h-24zM-16 10h32",
  helper: "M-7-13h14v26h-14zM-2 9h4",
};

const words = { up: "", joining: "joining", cut: "cut" };
// labelOf leaves out a direction that has under a hundredth of the other one.
const labelOf = (l) => (l.state !== "up" ? "✕ " + words[l.state] : isIdle(l) ? "idle" : [l.down * 100 >= l.up && "↓ " + rate(l.down), l.up * 100 >= l.down && "↑ " + rate(l.up)].filter(Boolean).join("  "));
const isIdle = (l) => l.down + l.up < 1000;

// sentence tells the picture to those who do not see it.
function sentence({ nodes, links }) {
  const name = new Map(nodes.map((n) => [n.id, n.role + " " + n.name]));
  const parts = links.map((l) => `${name.get(l.from)} to ${name.get(l.to)}: ${l.state !== "up" ? words[l.state] : isIdle(l) ? "idle" : "down " + rate(l.down) + ", up " + rate(l.up)}.`);
  for (const n of nodes) if (n.online && n.battery) parts.push(`Battery of ${name.get(n.id)}: ${n.battery}.`);
  for (const n of nodes) if (!n.online) parts.push(`${name.get(n.id)} is not there.`);
  return parts.join(" ") || "No other device is there.";
}

// topology makes the figure; its update takes a status.
export function topology() {
  const title = s("title", { id: "topology-title" }, "Devices and links"), desc = s("desc", { id: "topology-desc" });
  const links = s("g"), nodes = s("g"), labels = s("g");
  const svg = s("svg", { class: "topology", id: "topology", role: "img", "aria-labelledby": "topology-title topology-desc", xmlns: "http://www.w3.org/2000/svg" }, title, desc, links, nodes, labels);
  let now = { nodes: [], links: [] }, width;
  let at, most; // as of now, also for what was made before: the nodes, and the quickest link
  const el = h("figure", null, svg,
    h("figcaption", { class: "key" }, h("span", null, h("i"), "direct"), h("span", { class: "helped" }, h("i"), "by a helper"), h("span", { class: "idle" }, h("i"), "idle"), h("span", { class: "cut" }, h("i"), "✕ cut"), h("span", null, "the thicker, the quicker")),
    h("p", { class: "tools small", "aria-label": "This picture as a file", role: "group" },
      h("button", { type: "button", onclick: () => save(new Blob([drawn(svg)], { type: "image/svg+xml" }), "mpbond-topology.svg") }, "SVG"),
      h("button", { type: "button", onclick: () => asPNG(svg) }, "PNG"),
      h("button", { type: "button", onclick: () => save(new Blob([asCSV(now)], { type: "text/csv" }), "mpbond-topology.csv") }, "CSV")));
  el.update = (st) => {
    now = model(st);
    width = el.clientWidth && el.clientWidth < 500 ? 360 : 720;
    const height = place(now.nodes, width);
    set(svg, "viewBox", `0 0 ${width} ${height}`);
    at = new Map(now.nodes.map((n) => [n.id, n]));
    most = Math.max(1e6, ...now.links.map((l) => l.down + l.up));
    keyed(links, now.links, (l) => l.id, () => {
      const g = s("g");
      const line = g.appendChild(s("line", { class: "link" }));
      g.update = (l) => {
        const a = at.get(l.from), b = at.get(l.to);
        set(g, "class", (l.state !== "up" ? "cut" : isIdle(l) ? "idle" : l.kind));
        set(g, "data-state", l.state);
        for (const [k, v] of Object.entries({ x1: a.x, y1: a.y, x2: b.x, y2: b.y, "stroke-width": (l.state === "up" ? thin + (thick - thin) * ((l.down + l.up) / most) : thin).toFixed(1) })) set(line, k, v);
      };
      return g;
    });
    keyed(labels, now.links, (l) => l.id, () => {
      const g = s("g"), text = g.appendChild(s("text", { class: "rate" }));
      g.update = (l) => {
        const a = at.get(l.from), b = at.get(l.to);
        const upright = Math.abs(a.x - b.x) < 40, level = Math.abs(a.y - b.y) < 40; // beside the link, over it, on it
        set(g, "class", [l.state !== "up" && "cut", upright && "upright"].filter(Boolean).join(" "));
        set(text, "x", upright ? a.x + thick / 2 + 8 : (a.x + b.x) / 2);
        set(text, "y", level ? (a.y + b.y) / 2 - 14 : upright ? a.y + (b.y - a.y) * 0.36 + 4 : (a.y + b.y) / 2 + 4);
        put(text, labelOf(l));
      };
      return g;
    });
    keyed(nodes, now.nodes, (n) => n.id, (n) => {
      const above = n.role === "server"; // links leave it downwards
      const name = s("text", { class: "name", y: above ? -51 : 46 }), role = s("text", { class: "role", y: above ? -36 : 61 }), charge = s("text", { class: "role", y: above ? 46 : 76 });
      const g = s("g", null, s("circle", { class: "node", r: 27 }), s("path", { class: "glyph", d: glyphs[n.role] }), name, role, charge);
      g.update = (n) => {
        set(g, "class", [n.self && "self", !n.online && "away"].filter(Boolean).join(" "));
        set(g, "transform", `translate(${n.x} ${n.y})`);
        put(name, n.name.length > 18 ? n.name.slice(0, 17) + "…" : n.name);
        put(role, n.self && width < 500 ? "this device" : n.role + (n.self ? ", this device" : n.online ? "" : ", away"));
        put(charge, n.online ? n.battery : "");
      };
      return g;
    });
    put(desc, sentence(now));
  };
  return el;
}

// drawn is the picture as a file of its own: with the colours that it has now.
function drawn(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((el, i) => {
    const style = getComputedStyle(el);
    for (const k of ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order", "font-family", "font-size", "font-weight", "text-anchor"]) {
      to[i].setAttribute(k, style.getPropertyValue(k));
    }
    to[i].removeAttribute("class");
    delete to[i].dataset.key;
  });
  const [, , w, height] = svg.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", w);
  copy.setAttribute("height", height);
  const ground = getComputedStyle(document.documentElement).getPropertyValue("--card");
  copy.insertBefore(s("rect", { width: w, height, fill: ground }), copy.children[2]);
  return new XMLSerializer().serializeToString(copy);
}

async function asPNG(svg) {
  const url = URL.createObjectURL(new Blob([drawn(svg)], { type: "image/svg+xml" }));
  const [, , w, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const canvas = h("canvas", { width: 2 * w, height: 2 * height });
  const img = new Image();
  img.src = url;
  await img.decode();
  canvas.getContext("2d").drawImage(img, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  canvas.toBlob((blob) => save(blob, "mpbond-topology.png"));
}

const cell = (v) => { // as a spreadsheet takes it for text
  const t = /^[=+\-@]/.test(String(v)) ? "'" + v : String(v);
  return /[",\n]/.test(t) ? '"' + t.replaceAll('"', '""') + '"' : t;
};

function asCSV({ nodes, links }) {
  const name = new Map(nodes.map((n) => [n.id, n]));
  const rows = [["from", "from_role", "to", "to_role", "kind", "state", "down_bps", "up_bps"],
    ...links.map((l) => [name.get(l.from).name, name.get(l.from).role, name.get(l.to).name, name.get(l.to).role, l.kind, l.state, l.down, l.up])];
  return rows.map((r) => r.map(cell).join(",")).join("\r\n") + "\r\n";
}
