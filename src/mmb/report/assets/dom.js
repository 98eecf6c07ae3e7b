"use strict";
// Small helpers. Text enters the page only as text: nothing here parses HTML.

const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function fillSelect(select, names) {
  select.replaceChildren(...names.map((name, index) => make("option", { value: index }, name)));
}

const known = (value) => value !== null && value !== undefined;

function number(value, digits = 3) {
  if (!known(value)) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−"); // a true minus sign, none at zero
}

function signed(value, digits = 3) {
  const text = number(value, digits);
  return known(value) && value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

const range = (low, high, show = number) => (known(low) ? `${show(low)} to ${show(high)}` : "–");

function pValue(value) {
  if (!known(value)) return "–";
  return value < 0.001 ? "< 0.001" : value.toFixed(3);
}

function plainTable(table, caption, columns, rows) {
  table.replaceChildren(
    make("caption", {}, make("span", {}, caption)),
    make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, index) =>
      index ? make("td", {}, cell) : make("th", { scope: "row" }, cell))))),
  );
}

// The curves of a run's log: kind of its lines, name, title.
const CURVES = (titles) => [
  ...Object.entries(titles).map(([name, title]) => ["valid", name, `validation ${title}`]),
  ["train", "loss", "training loss"], ["train", "gap", "gap of the mean scores"], ["train", "dual_error", "distance of the duals"],
  ["train", "fpr", "false positive rate, bounded"], ["train", "feasible", "share of tasks within the bound"],
  ["train", "gradient_norm", "norm of the gradient"],
];
