// SPDX-License-Identifier: Apache-2.0
// Pictures of the page as files.

import { h, s, save, say } from "./dom.js";

const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order",
  "font-family", "font-size", "font-weight", "text-anchor"];

// standalone returns a picture as a file with its current colours.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((el, i) => {
    const style = getComputedStyle(el);
    for (const k of kept) to[i].setAttribute(k, style.getPropertyValue(k));
    to[i].removeAttribute("class");
    delete to[i].dataset.key;
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const ground = getComputedStyle(document.documentElement).getPropertyValue("--card");
  copy.insertBefore(s("rect", { width, height, fill: ground }), copy.children[2]); // after title and description
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

// saveSVG downloads a picture, whose first children are its title and description.
export const saveSVG = (svg, name) => save(standalone(svg), name + ".svg");

// savePNG downloads a picture with two pixels for each of its units.
export async function savePNG(svg, name) {
  const url = URL.createObjectURL(standalone(svg));
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const canvas = h("canvas", { width: 2 * width, height: 2 * height });
  const img = new Image();
  img.src = url;
  await img.decode();
  canvas.getContext("2d").drawImage(img, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  canvas.toBlob((blob) => save(blob, name + ".png"));
}

// fileButtons returns a group of buttons. Each saves a picture in one format.
export function fileButtons(label, savers) {
  const saver = (f) => async () => {
    try { await f(); } catch (e) { say(e.message); }
  };
  return h("div", { class: "tools small", role: "group", "aria-label": label }, Object.entries(savers)
    .map(([format, f]) => h("button", { type: "button", onclick: saver(f) }, format)));
}
