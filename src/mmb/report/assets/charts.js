"use strict";
// Charts in the colors of the page, redrawn when those change.

const drawn = new Map(); // id of a chart -> how to draw it

const PALETTE = {
  light: ["#0b66b8", "#c94f00", "#0b8457", "#a3378a", "#8a6d00", "#5a5fd6", "#b3261e", "#4d5761"],
  dark: ["#6cb6ff", "#ff9d5c", "#4ed6a0", "#e79ad3", "#e6c34a", "#a9adff", "#ff8a80", "#b9c2cc"],
};
const DASHES = ["solid", "dash", "dot", "dashdot"];

const darkMode = window.matchMedia("(prefers-color-scheme: dark)");
const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function methodLine(index) {
  const palette = PALETTE[darkMode.matches ? "dark" : "light"];
  return { color: palette[index % palette.length], dash: DASHES[Math.floor(index / palette.length) % 4], width: 2 };
}

// Plotly reads some HTML in its labels; this makes it show any text unchanged.
const label = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function axis(title, more = {}) {
  return {
    title: { text: label(title) }, gridcolor: themeColor("line"), linecolor: themeColor("line"), zerolinecolor: themeColor("line"),
    automargin: true, ...more,
  };
}

function draw(id, build) {
  drawn.set(id, build);
  const { traces, layout } = build();
  const touch = window.matchMedia("(pointer: coarse)").matches;
  Plotly.react(byId(id), traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: themeColor("ink"), size: 13 },
    margin: { l: 48, r: 12, t: 12, b: 44 }, hovermode: "closest",
    dragmode: touch ? false : "zoom", // a finger scrolls the page
    legend: { orientation: "h", yref: "container", yanchor: "top", y: 1, x: 0, bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: themeColor("soft"), bordercolor: themeColor("line"), font: { color: themeColor("ink") }, align: "left" },
    ...layout,
  }, { responsive: true, displayModeBar: false });
}

darkMode.addEventListener("change", () => drawn.forEach((build, id) => draw(id, build)));
