// SPDX-License-Identifier: Apache-2.0
// The picture of the devices: the server above, a primary below, helpers on both sides between
// them; several primaries on an arc below the server. Links are as thick as their rate.

import { battery } from "./facts.js";
import { h, s, put, set, keyed, rate, save } from "./dom.js";
import { fileButtons, saveSVG, savePNG } from "./picture.js";

const rowServer = 84, radius = 27; // of nodes
const thin = 2, thick = 16; // of a link, by its share of the fastest one

// model returns the devices and links of a status. Tests use it too.
export function model(st) {
  const nodes = new Map(), links = new Map();
  const known = new Map(st.devices.map((d) => [d.name, d]));
  const node = (role, name, more) => {
    const id = role + " " + name;
    if (!nodes.has(id)) nodes.set(id, { id, role, name, online: true, self: false, ...more });
    return id;
  };
  const link = (from, to, kind, more) => { // a device may have several bonds over it
    const id = from + ">" + to, subflows = [...(links.get(id)?.subflows ?? []), ...more];
    const up = subflows.filter((p) => p.state === "up");
    const sum = (f) => subflows.reduce((n, p) => n + (p[f] || 0), 0);
    const [down, upward] = st.role === "server" ? ["tx_rate_bps", "rx_rate_bps"] : ["rx_rate_bps", "tx_rate_bps"];
    const state = up.length > 0 ? "up" : subflows.some((p) => p.state === "joining") ? "joining" : "cut";
    links.set(id, { id, from, to, kind, state, down: sum(down), up: sum(upward), subflows });
  };
  const bond = (b, primary, server, self) => {
    const by = new Map();
    for (const p of b.subflows) {
      const k = p.kind === "helped" ? p.device : "";
      by.set(k, [...(by.get(k) ?? []), p]);
    }
    for (const [helper, subflows] of by) {
      const real = subflows.filter((p) => p.id !== 0);
      if (helper === "") {
        link(primary, server, "direct", real.length ? real : subflows);
        continue;
      }
      const id = node("helper", helper);
      link(primary, id, "helped", real);
      link(id, server, "helped", real);
    }
  };
  const isHelper = st.role === "helper" || st.role === "dual";
  if (st.role === "server") {
    const me = node("server", st.name, { self: true });
    for (const b of st.bonds) bond(b, node("primary", b.peer), me);
  }
  if (st.role === "primary" || st.role === "dual") {
    const me = node("primary", st.name, { self: true });
    for (const b of st.bonds) bond(b, me,
      node("server", b.peer || "server", { online: b.subflows.some((p) => p.state === "up") }));
  }
  if (isHelper && st.helper) {
    const me = st.role === "dual" ? node("primary", st.name) : node("helper", st.name, { self: true });
    if (st.helper.primary) {
      const subflows = [{ state: "up", rx_rate_bps: st.relayed?.down ?? 0, tx_rate_bps: st.relayed?.up ?? 0,
        id: 1, kind: "helped" }];
      const them = node("primary", st.helper.primary);
      link(them, me, "helped", subflows);
      if (st.helper.subflows > 0 && st.role === "helper") link(me,
        node("server", st.helper.server || "server"), "helped", subflows);
    }
  }
  for (const d of known.values()) { // absent ones
    if (d.self) continue;
    for (const role of d.roles) {
      if ([...nodes.values()].some((n) => n.name === d.name)) continue;
      node(role, d.name, { online: d.online });
    }
  }
  for (const n of nodes.values()) n.battery = battery(known.get(n.name)?.facts);
  return { nodes: [...nodes.values()], links: [...links.values()] };
}

// layoutNodes sets the position of each node in a picture of that width and returns the height. The
// order depends on names only, so that nodes stay in place while links come and go.
function layoutNodes(nodes, links, width) {
  const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  const of = (role) => nodes.filter((n) => n.role === role).sort(byName);
  const servers = of("server"), primaries = of("primary"), helpers = of("helper"), narrow = width < 500;
  servers.forEach((n, i) => { n.x = (width * (i + 1)) / (servers.length + 1); n.y = rowServer; });
  const bottom = primaries.length > 1 ? layoutArc(groupByPrimary(primaries, helpers, links), width)
    : layoutColumns(primaries, helpers, width);
  return bottom + (narrow ? 86 : 92);
}

// layoutColumns places helpers on the left and right, one below the other, between the server above
// and the primary below, so that no link crosses another helper.
function layoutColumns(primaries, helpers, width) {
  const narrow = width < 500, margin = narrow ? 50 : 92, first = rowServer + (narrow ? 136 : 80),
    step = narrow ? 152 : 132;
  helpers.forEach((n, i) => {
    n.x = i % 2 ? width - margin : margin;
    n.y = first + Math.floor(i / 2) * step;
  });
  const last = Math.max(rowServer, ...helpers.map((n) => n.y));
  primaries.forEach((n) => { n.x = width / 2; n.y = last + (narrow ? 184 : 160); });
  return Math.max(last, ...primaries.map((n) => n.y));
}

// groupByPrimary lists primaries, each between its helpers, and then helpers without a primary.
function groupByPrimary(primaries, helpers, links) {
  const left = new Set(helpers);
  const groups = primaries.map((p) => {
    const own = [...left].filter((n) => links.some((l) => l.from === p.id && l.to === n.id));
    own.forEach((n) => left.delete(n));
    return [...own.filter((_, i) => i % 2 === 0).reverse(), p, ...own.filter((_, i) => i % 2)];
  });
  return [...groups.flat(), ...left];
}

// layoutArc places nodes on the lower half of an ellipse around the server, with room for labels
// between them. A link between two points of a convex curve, or to its centre, crosses no third
// point.
function layoutArc(list, width) {
  const narrow = width < 500, rx = width / 2 - (narrow ? 50 : 92), apart = narrow ? 186 : 196;
  const top = narrow ? 140 : 70; // of the outermost, below the server
  let points, long, deep = 120;
  do { // deeper, until there is room
    deep += 20;
    const from = Math.asin(Math.min(1, top / deep)), n = 400;
    points = Array.from({ length: n + 1 }, (_, i) => {
      const a = Math.PI - from - ((Math.PI - 2 * from) * i) / n;
      return { x: width / 2 + rx * Math.cos(a), y: rowServer + deep * Math.sin(a), at: 0 };
    });
    for (let i = 1; i <= n; i++) points[i].at = points[i - 1].at +
      Math.hypot(points[i].x - points[i - 1].x, points[i].y - points[i - 1].y);
    long = points[n].at;
  } while (long < apart * (list.length - 1) && deep < 2000);
  list.forEach((node, i) => {
    const p = points.find((p) => p.at >= (long * i) / Math.max(1, list.length - 1) - 1e-6);
    node.x = p.x;
    node.y = p.y;
  });
  return Math.max(...list.map((n) => n.y));
}

// labelLines returns the lines of a link's label. It omits a direction with less than a hundredth
// of the other one.
const labelLines = (l) => (l.state !== "up" ? ["✕ " + stateWords[l.state]] : isIdle(l) ? ["idle"] :
  [l.down * 100 >= l.up && "↓ " + rate(l.down), l.up * 100 >= l.down && "↑ " + rate(l.up)].filter(Boolean));

const charWide = 6.6, lineHigh = 15; // of labels
const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
const box = (x, y, w, h) => ({ x: x - w / 2, y: y - h / 2, w, h });

// nodeName and nodeRole return the texts of a node.
const nodeName = (n, width) => {
  const most = width < 500 ? 11 : 18;
  return n.name.length > most ? n.name.slice(0, most - 1) + "…" : n.name;
};
const nodeRole = (n, width) => (n.self && width < 500 ? "this device"
  : n.role + (n.self ? ", this device" : n.online ? "" : ", away"));

// nodeBoxes returns the areas of a node: its circle and its texts.
function nodeBoxes(n, width) {
  const wide = Math.max(nodeName(n, width).length * 7.8, nodeRole(n, width).length * 6.3, 40),
    above = n.role === "server";
  return [box(n.x, n.y, 2 * radius + 6, 2 * radius + 6),
    above ? box(n.x, n.y - 47, wide, 36) : box(n.x, n.y + (n.battery ? 58 : 50), wide, n.battery ? 52 : 36)];
}

// placeLabels finds a position on each link where its label covers no node and no other label. It
// keeps the previous position if that is free.
function placeLabels(list, at, before, width) {
  const taken = [...at.values()].flatMap((n) => nodeBoxes(n, width)), places = new Map();
  const long = (l) => Math.hypot(at.get(l.from).x - at.get(l.to).x, at.get(l.from).y - at.get(l.to).y);
  // short ones have less choice
  for (const l of [...list].sort((a, b) => long(a) - long(b) || (a.id < b.id ? -1 : 1))) {
    const a = at.get(l.from), b = at.get(l.to), text = labelLines(l);
    const wide = Math.ceil(Math.max(...text.map((t) => t.length)) / 4) * 4 * charWide,
      high = text.length * lineHigh + 2;
    const fit = ([t, dx]) => box(a.x + (b.x - a.x) * t + dx, a.y + (b.y - a.y) * t, wide, high);
    const steps = Array.from({ length: 31 }, (_, i) => 0.5 + (i % 2 ? 1 : -1) * Math.ceil(i / 2) * 0.025);
    const spots = [before.get(l.id) ?? [0.5, 0], ...[0, 12, -12, 24, -24].flatMap((dx) => steps.map((t) => [t, dx]))];
    const spot = spots.find((s) => !taken.some((o) => overlap(o, fit(s)))) ?? [0.5, 0];
    places.set(l.id, spot);
    taken.push(fit(spot));
  }
  return places;
}

const glyphs = {
  server: "M-10-13h20v10h-20zM-10 3h20v10h-20zM-5-8h1M-5 8h1",
  primary: "M-12-9h24v15h-24zM-16 10h32",
  helper: "M-7-13h14v26h-14zM-2 9h4",
};

const stateWords = { up: "", joining: "joining", cut: "cut" };
const isIdle = (l) => l.down + l.up < 1000;

// sentence describes the picture for screen readers.
function sentence({ nodes, links }) {
  const name = new Map(nodes.map((n) => [n.id, n.role + " " + n.name]));
  const parts = links.map((l) => `${name.get(l.from)} to ${name.get(l.to)}: ` +
    `${l.state !== "up" ? stateWords[l.state] : isIdle(l) ? "idle" : "down " + rate(l.down) + ", up " + rate(l.up)}.`);
  for (const n of nodes) if (n.online && n.battery) parts.push(`Battery of ${name.get(n.id)}: ${n.battery}.`);
  for (const n of nodes) if (!n.online) parts.push(`${name.get(n.id)} is away.`);
  return parts.join(" ") || "No other device is there.";
}

// topology makes the figure. Its function update takes a status.
export function topology() {
  const title = s("title", { id: "topology-title" }, "Devices and links"), desc = s("desc", { id: "topology-desc" });
  const links = s("g"), nodes = s("g"), labels = s("g");
  const svg = s("svg", { class: "topology", id: "topology", role: "img",
    "aria-labelledby": "topology-title topology-desc", xmlns: "http://www.w3.org/2000/svg" }, title, desc, links,
    nodes, labels);
  let now = { nodes: [], links: [] }, width;
  let labelSpots = new Map(); // of labels, on their links
  let at, most; // current nodes by ID, and the rate of the fastest link
  const el = h("figure", null, svg,
    h("figcaption", { class: "key" }, h("span", null, h("i"), "direct"),
      h("span", { class: "helped" }, h("i"), "by a helper"), h("span", { class: "idle" }, h("i"), "idle"),
      h("span", { class: "cut" }, h("i"), "✕ cut"), h("span", null, "thickness: rate")),
    fileButtons("This picture as a file", {
      SVG: () => saveSVG(svg, "mpbond-topology"),
      PNG: () => savePNG(svg, "mpbond-topology"),
      CSV: () => save(new Blob([asCSV(now)], { type: "text/csv" }), "mpbond-topology.csv"),
    }));
  el.update = (st) => {
    now = model(st);
    width = el.clientWidth && el.clientWidth < 500 ? 360 : 720;
    const height = layoutNodes(now.nodes, now.links, width);
    set(svg, "viewBox", `0 0 ${width} ${height}`);
    at = new Map(now.nodes.map((n) => [n.id, n]));
    labelSpots = placeLabels(now.links, at, labelSpots, width);
    most = Math.max(1e6, ...now.links.map((l) => l.down + l.up));
    keyed(links, now.links, (l) => l.id, () => {
      const g = s("g");
      const line = g.appendChild(s("line", { class: "link" }));
      g.update = (l) => {
        const a = at.get(l.from), b = at.get(l.to);
        set(g, "class", (l.state !== "up" ? "cut" : isIdle(l) ? "idle" : l.kind));
        set(g, "data-state", l.state);
        const thickness = l.state === "up" ? thin + (thick - thin) * ((l.down + l.up) / most) : thin;
        for (const [k, v] of Object.entries({ x1: a.x, y1: a.y, x2: b.x, y2: b.y,
          "stroke-width": thickness.toFixed(1) })) set(line, k, v);
      };
      return g;
    });
    keyed(labels, now.links, (l) => l.id, () => {
      const g = s("g"), plate = g.appendChild(s("rect", { class: "plate", rx: 5 })),
        text = g.appendChild(s("text", { class: "rate" }));
      const rows = [text.appendChild(s("tspan")), text.appendChild(s("tspan"))];
      g.update = (l) => {
        const a = at.get(l.from), b = at.get(l.to), [t, dx] = labelSpots.get(l.id), say = labelLines(l);
        set(g, "class", l.state !== "up" ? "cut" : null);
        const wide = Math.max(...say.map((t) => t.length)) * charWide + 8, high = say.length * lineHigh + 4;
        for (const [k, v] of Object.entries({ x: a.x + (b.x - a.x) * t + dx - wide / 2,
          y: a.y + (b.y - a.y) * t - high / 2, width: wide, height: high })) set(plate, k, v.toFixed(1));
        rows.forEach((row, i) => {
          set(row, "x", (a.x + (b.x - a.x) * t + dx).toFixed(1));
          set(row, "y", (a.y + (b.y - a.y) * t + 4 + (i - (say.length - 1) / 2) * lineHigh).toFixed(1));
          put(row, say[i] ?? "");
        });
      };
      return g;
    });
    keyed(nodes, now.nodes, (n) => n.id, (n) => {
      const above = n.role === "server"; // its links go down
      const name = s("text", { class: "name", y: above ? -51 : 46 }),
        role = s("text", { class: "role", y: above ? -36 : 61 }),
        charge = s("text", { class: "role", y: above ? 46 : 76 });
      const g = s("g", null, s("circle", { class: "node", r: 27 }), s("path", { class: "glyph", d: glyphs[n.role] }),
        name, role, charge);
      g.update = (n) => {
        set(g, "class", [n.self && "self", !n.online && "away"].filter(Boolean).join(" "));
        set(g, "transform", `translate(${n.x} ${n.y})`);
        put(name, nodeName(n, width));
        put(role, nodeRole(n, width));
        put(charge, n.online ? n.battery : "");
      };
      return g;
    });
    put(desc, sentence(now));
  };
  return el;
}

const cell = (v) => { // escaped for a spreadsheet
  const t = /^[=+\-@]/.test(String(v)) ? "'" + v : String(v);
  return /[",\n]/.test(t) ? '"' + t.replaceAll('"', '""') + '"' : t;
};

function asCSV({ nodes, links }) {
  const name = new Map(nodes.map((n) => [n.id, n]));
  const rows = [["from", "from_role", "to", "to_role", "kind", "state", "down_bps", "up_bps"],
    ...links.map((l) => [name.get(l.from).name, name.get(l.from).role, name.get(l.to).name, name.get(l.to).role, l.kind,
      l.state, l.down, l.up])];
  return rows.map((r) => r.map(cell).join(",")).join("\r\n") + "\r\n";
}
