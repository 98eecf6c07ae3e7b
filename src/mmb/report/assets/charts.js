"use strict";
// Charts as SVG in the colors of the page. What is at the pointer is written below the chart.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const drawn = new Map(); // id of a chart -> how to draw it

const tone = (method) => `var(--m${method % 8})`;
const dash = (method) => DASHES[Math.floor(method / 8) % DASHES.length];

function shape(tag, attributes, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (known(value)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

// About `count` round numbers from low to high.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return found.map((value) => [value, Math.abs(value) >= 1e5 ? value.toExponential(0) : number(value, digits)]);
}

function extent(values, margin = 0.04) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (known(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) return [0, 1];
  const spare = margin * (high - low || Math.abs(high) || 1);
  return [low - spare, high + spare];
}

// chart: {x: {title, range}, y: {title, range}, lines: [{x, y, method | color, name, dashed, dots}],
//   points: [{x, y, low, high, color, ring, text, choose}], band: [from, to], zero, missing}
function draw(id, build) {
  drawn.set(id, build);
  const place = byId(id);
  const chart = build();
  const { lines = [], points = [] } = chart;
  const width = Math.max(280, place.clientWidth);
  const height = place.classList.contains("square") ? Math.min(width, 480) : Math.min(340, Math.max(240, 0.55 * width));
  const xs = chart.x.range ?? extent([...lines.flatMap((line) => line.x), ...points.map((point) => point.x)], 0.02);
  const ys = chart.y.range ?? extent([...lines.flatMap((line) => line.y), ...points.flatMap((point) => [point.y, point.low, point.high])]);
  const [left, right, top, bottom] = [58, width - 10, 10, height - 44];
  const atX = (value) => left + ((value - xs[0]) / (xs[1] - xs[0])) * (right - left);
  const atY = (value) => bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (bottom - top);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false" });
  const clip = `${id}-clip`;
  const inside = shape("clipPath", { id: clip });
  inside.append(shape("rect", { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 12 }));
  svg.append(inside);
  if (chart.band) svg.append(shape("rect", { class: "band", x: atX(chart.band[0]), y: top, width: atX(Math.min(chart.band[1], xs[1])) - atX(chart.band[0]), height: bottom - top }));
  for (const [value, text] of ticks(...ys, Math.max(3, Math.round(height / 70)))) {
    svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: atY(value), y2: atY(value) }),
      shape("text", { x: left - 7, y: atY(value) + 4, "text-anchor": "end" }, text));
  }
  if (!chart.x.plain) for (const [value, text] of ticks(...xs, Math.max(3, Math.round(width / 110)))) svg.append(shape("text", { x: atX(value), y: bottom + 17, "text-anchor": "middle" }, text));
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    shape("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, chart.x.title),
    shape("text", { x: 13, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 13 ${(top + bottom) / 2})` }, shorter(chart.y.title, 44)));
  if (chart.zero) svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: atY(0), y2: atY(0) }));
  const marks = shape("g", { "clip-path": `url(#${clip})` });
  const spots = []; // what the pointer finds: place, text, choose
  for (const line of lines) {
    const color = line.color ?? tone(line.method);
    let path = "";
    line.x.forEach((x, k) => {
      const there = known(x) && known(line.y[k]);
      if (there) {
        path += `${path && known(line.y[k - 1]) ? "L" : "M"}${atX(x).toFixed(1)} ${atY(line.y[k]).toFixed(1)}`;
        if (line.dots) marks.append(shape("circle", { cx: atX(x), cy: atY(line.y[k]), r: 3, style: `fill: ${color}` }));
        if (line.name) spots.push({ x: atX(x), y: atY(line.y[k]), text: `${line.name}: ${(line.say ?? ((a, b) => `${number(b, 4)} at ${a.toLocaleString("en")}`))(x, line.y[k])}` });
      }
    });
    marks.append(shape("path", { d: path, class: "line", style: `stroke: ${color}`, "stroke-dasharray": line.dashed ?? (known(line.method) ? dash(line.method) : null) }));
  }
  for (const point of points) {
    const color = point.color ?? tone(point.method);
    if (known(point.low)) marks.append(shape("line", { x1: atX(point.x), x2: atX(point.x), y1: atY(point.low), y2: atY(point.high), style: `stroke: ${color}` }));
    marks.append(shape("circle", { cx: atX(point.x), cy: atY(point.y), r: points.length > 200 ? 2 : 4, class: point.ring ? "ring" : null, style: `${point.ring ? "stroke" : "fill"}: ${color}` }));
    spots.push({ x: atX(point.x), y: atY(point.y), text: point.text, choose: point.choose });
  }
  svg.append(marks);
  if (chart.missing) svg.append(shape("text", { x: (left + right) / 2, y: (top + bottom) / 2, "text-anchor": "middle" }, chart.missing));
  place.replaceChildren(svg, legend(lines, chart.keys));
  follow(place, svg, spots);
}

const shorter = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// One entry for each label of the lines, or the given ones: {label, method | color, dashed}.
function legend(lines, keys) {
  const entries = new Map((keys ?? lines.filter((line) => line.label)).map((line) => [line.label, line]));
  return make("p", { class: "legend" }, ...(entries.size > 1 || keys ? [...entries.values()] : []).map((line) => {
    const sample = shape("svg", { viewBox: "0 0 26 10", width: 26, height: 10, "aria-hidden": "true" });
    sample.append(shape("line", { x1: 1, x2: 25, y1: 5, y2: 5, class: "line", style: `stroke: ${line.color ?? tone(line.method)}`, "stroke-dasharray": line.dashed ?? (known(line.method) ? dash(line.method) : null) }));
    return make("span", {}, sample, line.label);
  }));
}

// The nearest spot to the pointer, within a finger's width.
function follow(place, svg, spots) {
  const note = make("p", { class: "note", "aria-hidden": "true" });
  const ring = shape("circle", { r: 6, class: "ring pointer", visibility: "hidden" });
  svg.append(ring);
  place.append(note);
  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let [best, found] = [30 ** 2, null];
    for (const spot of spots) {
      const away = (spot.x - x) ** 2 + (spot.y - y) ** 2;
      if (away < best) [best, found] = [away, spot];
    }
    return found;
  };
  svg.addEventListener("pointermove", (event) => {
    const spot = nearest(event);
    note.textContent = spot ? spot.text : "";
    ring.setAttribute("visibility", spot ? "visible" : "hidden");
    if (spot) { ring.setAttribute("cx", spot.x); ring.setAttribute("cy", spot.y); }
  });
  svg.addEventListener("click", (event) => nearest(event)?.choose?.());
}

let lastWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === lastWidth) return; // a phone's bars come and go
  lastWidth = window.innerWidth;
  drawn.forEach((build, id) => draw(id, build));
});
