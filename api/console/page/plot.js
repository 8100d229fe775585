// SPDX-License-Identifier: Apache-2.0
// Charts as SVG: lines over time, and bars. These functions turn values into elements and have no
// state. Colours are in console.css, so that light and dark follow the system. Lines also differ by
// dashes and have their names beside them, for people who do not see colours.

import { s, put, set } from "./dom.js";

// Layout, in pixels.
const height = 240, high = 33, low = 219; // of a chart; of its highest and lowest value
const narrow = 480; // narrower charts have the names below
const beside = 174, nameHeight = 15, nameWidth = 148, sample = 22; // of names; of the sample of a line
// at the right, also of bars; widths of a digit at the axis and a letter of the title
const margin = 24, dayMargin = 32, digit = 6, letter = 7.5;
const nameLength = 19; // characters
const barPart = 0.7, barWidth = 64; // part of its room that a bar fills, and at most

// dashes are the dashes of lines. No more lines are drawn.
export const dashes = [null, "7 3", "2 2", "9 3 2 3", "12 4", "4 2 1 2", "1 3", "6 2 2 2 2 2"];

const factors = {
  "bit/s": [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]],
  B: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]],
  J: [[1e3, "kJ"], [1, "J"]],
  ms: [[1e3, "s"], [1, "ms"]],
};

// scaleOf returns the multiple of a unit that suits top, and its name.
const scaleOf = (unit, top) => factors[unit].find(([factor]) => top >= factor) ?? factors[unit].at(-1);

const px = (v) => Number(v.toFixed(1));
const rounded = (v, digits) => String(Number(v.toPrecision(digits)));

// valueText returns a value with its unit.
function valueText(unit, v) {
  const [factor, name] = scaleOf(unit, v);
  return `${rounded(v / factor, 3)} ${name}`;
}

// printable replaces invisible characters. Some of them would break a saved picture.
const printable = (text) => text.replace(/\p{C}/gu, "\ufffd");

// niceStep returns a step for an axis: 1, 2 or 5 times a power of ten. Two to six steps reach top.
function niceStep(top) {
  if (!(top > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(top / 3));
  return ([1, 2, 5].find((m) => top / (m * power) <= 6) ?? 10) * power;
}

// canvas makes an SVG element. Its function `show` takes a function from a width to the result of
// lineChart or barChart; the chart is redrawn when the element's width changes.
export function canvas(id, name) {
  const title = s("title", { id: id + "-title" }, name), desc = s("desc", { id: id + "-desc" }, "Nothing to show yet."),
    marks = s("g");
  const svg = s("svg", { class: "chart", role: "img", viewBox: `0 0 760 ${height}`,
    "aria-labelledby": `${id}-title ${id}-desc` }, title, desc, marks);
  let chart, width;
  const widthNow = () => Math.round(Math.min(Math.max(svg.getBoundingClientRect().width, 240), 1200));
  svg.show = (f) => {
    chart = f;
    width = widthNow();
    const c = chart(width);
    put(title, c.title);
    put(desc, c.words);
    set(svg, "viewBox", `0 0 ${c.width} ${c.height}`);
    marks.replaceChildren(...c.marks);
  };
  new ResizeObserver(() => { if (chart && svg.isConnected && widthNow() !== width) svg.show(chart); }).observe(svg);
  return svg;
}

// headOf makes the title around x, on two lines if it is too wide.
function headOf(text, x) {
  const middle = text.length / 2, spaces = [...text.matchAll(/ /g)].map((m) => m.index);
  const cut = spaces.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0];
  // keep a unit with its number
  const rows = text.length * letter <= 2 * x ? [text] : [text.slice(0, cut), text.slice(cut + 1)];
  return [s("text", { class: "head" },
    rows.flatMap((row, i) => [i > 0 && " ", s("tspan", { x, y: rows.length > 1 ? 12 + 13 * i : 16 }, row)]))];
}

// axes returns the marks that lines and bars share, and the positions of values: x takes a part of
// the axis, y a value.
function axes({ title, unit, top, right }, ticks) {
  const [factor, name] = scaleOf(unit, top), step = niceStep(top / factor);
  const steps = Math.max(Math.ceil(top / factor / step - 1e-9), 1);
  const labels = Array.from({ length: steps + 1 }, (_, i) => rounded(i * step, 4));
  const left = 16 + digit * Math.max(...labels.map((l) => l.length));
  const x = (part) => px(left + (right - left) * part),
    y = (v) => px(low - ((low - high) * v) / (factor * step * steps));
  const marks = headOf(`${title}, ${name}`, px((left + right) / 2));
  labels.forEach((label, i) => {
    const at = y(i * step * factor);
    marks.push(s("path", { class: "rule", d: `M${left - 5} ${at}H${right}` }),
      s("text", { class: "value", x: left - 9, y: at + 4 }, label));
  });
  for (const [part, label] of ticks) {
    marks.push(s("path", { class: "rule", d: `M${x(part)} ${low}v5` }), s("text", { x: x(part), y: low + 16 }, label));
  }
  marks.push(s("path", { class: "axis", d: `M${left} ${low}H${right}` }));
  return { x, y, marks };
}

// lineChart draws an answer to /v2/plots/NAME over the last span seconds. A null value is a gap.
export function lineChart(p, span, width) {
  const ago = p.times.map((t) => (Date.parse(p.times.at(-1)) - Date.parse(t)) / 1000);
  const all = p.series.map((l) =>
    ({ name: printable(l.name), values: l.values.map((v, i) => (ago[i] > span ? null : v)) }));
  const lines = busiest(all), more = all.length - lines.length, isNarrow = width < narrow;
  const c = { title: p.title, words: all.map((l) => sentence(p.unit, l)).join(" ") || "Nothing to show yet.",
    width, height, unit: p.unit };
  c.top = Math.max(0, ...lines.flatMap((l) => l.values));
  c.right = width - (isNarrow ? margin : beside);
  const { x, y, marks } = axes(c, agoTicks(span));
  lines.forEach((l, i) => {
    const d = l.values.map((v, k) =>
      (v === null ? "" : `${l.values[k - 1] === null || k === 0 ? "M" : "L"}${x(1 - ago[k] / span)} ${y(v)}`)).join("");
    marks.push(s("path", { class: "line series-" + i, "stroke-dasharray": dashes[i], d }));
  });
  const rest = more > 0 ? `and ${more} more with less` : "";
  const names = isNarrow ? namesBelow(lines, rest, width) : namesBeside(lines, rest, c.right + 10, (v) => y(v ?? 0));
  if (isNarrow) c.height += nameHeight * Math.ceil((lines.length + (rest ? 1 : 0)) / columnsOf(width));
  return { ...c, marks: [...marks, ...names] };
}

// busiest returns the lines with the largest sums, in their order, as many as there are dashes.
function busiest(lines) {
  if (lines.length <= dashes.length) return lines;
  const sum = (l) => l.values.reduce((n, v) => n + (v ?? 0), 0);
  const most = new Set([...lines].sort((a, b) => sum(b) - sum(a)).slice(0, dashes.length));
  return lines.filter((l) => most.has(l));
}

// sentence describes a line's last and highest value.
function sentence(unit, l) {
  const last = l.values.at(-1) ?? null, values = l.values.filter((v) => v !== null);
  return `${l.name}: ${last === null ? "not there now" : valueText(unit, last) + " now"}, at most ` +
    `${values.length ? valueText(unit, Math.max(...values)) : "nothing"}.`;
}

// agoTicks are quarters of the span, in seconds or minutes.
const agoTicks = (span) => [0, 1, 2, 3, 4].map((i) => {
  const ago = (span * (4 - i)) / 4;
  return [i / 4, ago === 0 ? "now" : span > 120 ? `−${ago / 60} min` : `−${ago} s`];
});

// nameOf makes a line's name after a sample of the line.
function nameOf(l, i, x, y) {
  const letters = [...l.name];
  const name = letters.length > nameLength ? letters.slice(0, nameLength - 1).join("") + "…" : l.name;
  return [s("path", { class: "line series-" + i, "stroke-dasharray": dashes[i], d: `M${x} ${y}h${sample}` }),
    s("text", { class: "name", x: x + sample + 5, y: y + 4 }, name)];
}

// namesBeside places each name at the end of its line, or as near as possible.
function namesBeside(lines, rest, x, y) {
  const labels = lines.map((l, i) => ({ l, i, y: y(l.values.at(-1)) })).sort((a, b) => b.y - a.y);
  labels.forEach((label, k) => { // from below: each above the one before it
    if (k > 0) label.y = Math.min(label.y, labels[k - 1].y - nameHeight);
  });
  let limit = high;
  for (const label of labels.reverse()) { // from above: none beyond the edge
    label.y = Math.max(label.y, limit);
    limit = label.y + nameHeight;
  }
  return [...labels.flatMap((label) => nameOf(label.l, label.i, x, label.y)),
    rest && s("text", { class: "name rest", x: x + sample + 5, y: height - 5 }, rest)].filter(Boolean);
}

const columnsOf = (width) => Math.max(Math.floor(width / nameWidth), 1);

// namesBelow places the names in columns under a narrow chart.
function namesBelow(lines, rest, width) {
  const columns = columnsOf(width);
  const at = (i) => [10 + (i % columns) * nameWidth, height + 7 + Math.floor(i / columns) * nameHeight];
  const [x, y] = at(lines.length);
  return [...lines.flatMap((l, i) => nameOf(l, i, ...at(i))),
    rest && s("text", { class: "name rest", x, y: y + 3 }, rest)].filter(Boolean);
}

// barChart draws a bar for each period. Values are bytes (unit B) or joules (J).
export function barChart({ title, unit, names, values }, width) {
  const n = values.length, at = (i) => (i + 0.5) / n, text = (i) => `${names[i]}: ${valueText(unit, values[i])}`;
  const c = { title: printable(title), words: "Nothing to show yet.", width, height, unit, top: Math.max(0, ...values),
    right: width - dayMargin };
  if (n > 0) c.words = `${text(n - 1)}. Most in ${text(values.indexOf(c.top))}.`;
  const every = Math.ceil(n / Math.max(Math.floor(width / 95), 1)), ticks = []; // always label the last period
  for (let i = n - 1; i >= 0; i -= every) ticks.push([at(i), names[i]]);
  const { x, y, marks } = axes(c, ticks);
  const wide = Math.max(Math.min(((x(1) - x(0)) / n) * barPart, barWidth), 1);
  const bars = values.map((v, i) => s("rect", { class: "bar", x: px(x(at(i)) - wide / 2), y: y(v), width: px(wide),
    height: px(low - y(v)) }));
  marks.splice(-1, 0, ...bars); // below the axis
  return { ...c, marks };
}
