"use strict";
// Verdicts, methods side by side, learning curves, what was run.

const page = JSON.parse(byId("data").textContent);
const LIMIT = page.max_fpr;
const METRICS = { ...page.titles, pauc: `${page.titles.pauc} (FPR ≤ ${LIMIT})` };
const WITHOUT_INTERVAL = Object.keys(METRICS).filter((name) => !["auc", "pauc"].includes(name));
const SELECTED_TOO = WITHOUT_INTERVAL.filter((name) => name !== "ap"); // one of its own, if any
const SIGNIFICANT = 0.05;

function showTitle() {
  const tasks = page.tasks.name.length;
  const runs = page.runs.length;
  byId("title").textContent = `${page.data}: ${runs} run${runs > 1 ? "s" : ""}, ${tasks.toLocaleString("en")} task${tasks > 1 ? "s" : ""}`;
  const rows = Object.entries(page.sizes).map(([part, count]) => `${count.toLocaleString("en")} ${part}`).join(", ");
  byId("subtitle").textContent = `Rows: ${rows}. Written ${page.written} by mmb ${page.version}.`;
}

function showVerdicts() {
  const signs = { good: "✓", remark: "!", bad: "✗" };
  const meaning = { good: "good", remark: "remark", bad: "bad" };
  const sign = (status) => make("span", { class: `sign ${status}` }, make("span", { "aria-hidden": "true" }, signs[status]),
    make("span", { class: "hidden" }, ` ${meaning[status]}:`));
  byId("verdicts").replaceChildren(...page.runs.map((run) => {
    const list = run.checks.map((one) => {
      const title = one.title.charAt(0).toUpperCase() + one.title.slice(1);
      return make("li", {}, sign(one.status), " ", make("strong", {}, `${title}. `), one.text);
    });
    return make("details", { open: page.runs.length === 1 ? "" : null },
      make("summary", {}, sign(run.status), " ", make("strong", {}, run.name), ` – ${run.verdict}`), make("ul", {}, ...list));
  }));
}

function showComparison() {
  const withArea = (area) => `${number(area.value)} (${range(area.low, area.high)})`;
  const meanOf = (metric, index) => {
    const values = page.runs.filter((run) => run.method === index).map((run) => run.means[metric]).filter(known);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  };
  const several = page.methods.some((method) => method.runs > 1);
  plainTable(byId("methods"), "Mean over tasks on test rows, with 95 % interval",
    ["method", "runs", METRICS.auc, METRICS.pauc, ...WITHOUT_INTERVAL.map((metric) => METRICS[metric]),
      ...(several ? ["auc", "pauc"].map((metric) => `${page.titles[metric]}: spread over runs`) : [])],
    page.methods.map((method, index) => [
      method.name, String(method.runs), withArea(method.auc), withArea(method.pauc), ...WITHOUT_INTERVAL.map((metric) => number(meanOf(metric, index))),
      ...(several ? [number(method.auc.spread, 4), number(method.pauc.spread, 4)] : []),
    ]));
  byId("pairs-part").hidden = !page.pairs.length;
  byId("compare-words").textContent = page.pairs.length ? inWords() : "There is only one method: give more runs to compare.";
  byId("compare-note").textContent = compareNote();
  if (!page.pairs.length) return;
  const rows = page.pairs.flatMap((pair) => ["pauc", "auc"].map((metric) => {
    const found = pair[metric];
    return [`${page.methods[pair.a].name} − ${page.methods[pair.b].name}`, METRICS[metric], signed(found.value),
      range(found.low, found.high, signed), pValue(found.p), pValue(found.adjusted),
      known(found.adjusted) && found.adjusted < SIGNIFICANT ? "yes" : "no"];
  }));
  plainTable(byId("pairs"), "Differences of means over tasks",
    ["difference", "metric", "value", "95 % interval", "p", "p, adjusted", "significant"], rows);
  fillSelect(byId("pair-choice"), page.pairs.map((pair) => `${page.methods[pair.a].name} − ${page.methods[pair.b].name}`));
  byId("pair-metric").replaceChildren(make("option", { value: "pauc" }, METRICS.pauc), make("option", { value: "auc" }, METRICS.auc));
  for (const id of ["pair-choice", "pair-metric"]) byId(id).addEventListener("change", showPair);
  showPair();
}

function inWords() {
  const metric = page.select === "auc" ? "auc" : "pauc";
  const order = page.methods.map((_, index) => index).sort((a, b) => page.methods[b][metric].value - page.methods[a][metric].value);
  const best = order[0];
  if (!known(page.methods[best][metric].value)) return "No task has both classes among the test rows, so there is nothing to compare.";
  const clear = page.pairs.filter((pair) => (pair.a === best || pair.b === best) && known(pair[metric].adjusted) && pair[metric].adjusted < SIGNIFICANT);
  const beaten = clear.map((pair) => page.methods[pair.a === best ? pair.b : pair.a].name);
  const others = order.length - 1;
  const start = `${page.methods[best].name} has the highest mean ${METRICS[metric]}, ${number(page.methods[best][metric].value)}: `;
  if (beaten.length === others) return start + (others > 1 ? "significantly more than every other method." : `significantly more than ${beaten[0]}.`);
  if (!beaten.length) return `${start}not significantly more than ${others > 1 ? "any other method" : "the other method"}.`;
  return `${start}significantly more than ${beaten.join(", ")}, not significantly more than the other ${others - beaten.length}.`;
}

function compareNote() {
  const single = page.methods.filter((method) => method.runs === 1).map((method) => method.name);
  const noise = !single.length ? "Intervals cover the noise of the test rows and of training (seeds)."
    : `Intervals cover the noise of the test rows${single.length < page.methods.length ? "; that of training (seeds) too, except of" : ", not that of training: there is one run each of"} ${single.join(", ")}.`;
  return `${noise} Areas by DeLong's method and its extension to partial areas; all methods are judged on the same rows, so ` +
    "differences are paired. Adjusted p values account for many comparisons: over all pairs of methods and both metrics by " +
    "Holm (any false claim has a chance of at most 5 %); over the tasks of one pair by Benjamini and Hochberg (5 % of " +
    "the claims are expected to be false). Tasks with fewer than 10 test positives or negatives are not tested.";
}

function showPair() {
  const pair = page.pairs[Number(byId("pair-choice").value)];
  const metric = byId("pair-metric").value;
  const found = pair[metric].tasks;
  const [a, b] = [page.methods[pair.a].name, page.methods[pair.b].name];
  const tested = page.tasks.name.map((_, task) => task).filter((task) => known(found.low[task]));
  tested.sort((x, y) => found.value[x] - found.value[y]);
  const clear = (task) => known(found.adjusted[task]) && found.adjusted[task] < SIGNIFICANT;
  const up = tested.filter((task) => clear(task) && found.value[task] > 0).length;
  const down = tested.filter((task) => clear(task) && found.value[task] < 0).length;
  byId("pair-words").textContent = `Of ${tested.length} tasks tested, ${a} is significantly better on ${up}, ${b} on ${down}; ` +
    `the other ${tested.length - up - down} differences may be noise.`;
  draw("pair-chart", () => {
    const part = (name, chosen, tone) => {
      const places = tested.map((task, place) => [task, place]).filter(([task]) => chosen(task));
      return {
        type: "scatter", mode: "markers", name, x: places.map(([, place]) => place + 1), y: places.map(([task]) => found.value[task]),
        customdata: places.map(([task]) => task),
        text: places.map(([task]) => `${label(page.tasks.name[task])}<br>${signed(found.value[task])} (${range(found.low[task], found.high[task], signed)})<br>adjusted p ${label(pValue(found.adjusted[task]))}`),
        hoverinfo: "text", marker: { color: tone, size: tested.length > 200 ? 4 : 7 }, opacity: tested.length > 200 ? 0.6 : 1,
        error_y: {
          type: "data", symmetric: false, color: tone, thickness: 1, width: 0,
          array: places.map(([task]) => found.high[task] - found.value[task]),
          arrayminus: places.map(([task]) => found.value[task] - found.low[task]),
        },
      };
    };
    return {
      traces: [part("significant", clear, methodLine(up >= down ? pair.a : pair.b).color), part("may be noise", (task) => !clear(task), themeColor("quiet"))],
      layout: { xaxis: axis("tasks, by difference", { showgrid: false, zeroline: false }), yaxis: axis(`${a} − ${b}`, { zerolinecolor: themeColor("ink") }), showlegend: true },
    };
  });
  const chart = byId("pair-chart");
  chart.removeAllListeners("plotly_click");
  chart.on("plotly_click", (event) => chooseTask(event.points[0].customdata));
}

function showBranches() {
  const runs = page.runs.filter((run) => run.branches.length);
  byId("branches").hidden = !runs.length;
  byId("branch-tables").replaceChildren(...runs.map((run) => {
    const table = make("table", {});
    plainTable(table, run.name,
      ["branch", "method", "share", "steps", `validation ${page.titles[page.select]}`, ...Object.values(METRICS)],
      run.branches.map((branch) => [
        branch.name, branch.method, branch.stopped ? "stopped early" : number(branch.share, 2), branch.steps.toLocaleString("en"),
        number(branch.valid), ...Object.keys(METRICS).map((metric) => number(branch.test[metric])),
      ]));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Branches of ${run.name}` }, table);
  }));
}

const CURVES = [
  ["valid", "pauc", `validation ${METRICS.pauc}`], ["valid", "auc", `validation ${METRICS.auc}`],
  ...WITHOUT_INTERVAL.map((metric) => ["valid", metric, `validation ${METRICS[metric]}`]),
  ["train", "loss", "training loss"], ["train", "gap", "gap of the mean scores"], ["train", "dual_error", "distance of the duals"],
  ["train", "gradient_norm", "norm of the gradient"],
];

function showCurves() {
  const there = CURVES.filter(([kind, name]) => page.runs.some((run) => name in run.curves[kind]));
  fillSelect(byId("curve-choice"), there.map(([, , title]) => title));
  byId("curve-choice").value = String(Math.max(0, there.findIndex(([kind, name]) => kind === "valid" && name === page.select)));
  const redraw = () => {
    const [kind, name, title] = there[Number(byId("curve-choice").value)];
    const across = byId("curve-axis").value;
    draw("curve-chart", () => {
      const seen = new Set();
      const traces = page.runs.filter((run) => name in run.curves[kind]).map((run) => {
        const curve = run.curves[kind];
        const first = !seen.has(run.method);
        seen.add(run.method);
        return {
          type: "scatter", mode: "lines", x: curve[across], y: curve[name], name: label(page.methods[run.method].name),
          legendgroup: String(run.method), showlegend: first && page.methods.length > 1, line: { ...methodLine(run.method), width: 1.6 },
          text: curve[name].map((value) => `${label(run.name)}: ${number(value, 4)}`), hoverinfo: "text+x",
        };
      });
      return { traces, layout: { xaxis: axis(across === "step" ? "steps" : "seconds"), yaxis: axis(title) } };
    });
  };
  for (const id of ["curve-choice", "curve-axis"]) byId(id).addEventListener("change", redraw);
  redraw();
}

function showFacts() {
  byId("facts").replaceChildren(...page.runs.map((run) => {
    const facts = Object.entries(run.facts).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
    return make("details", { open: page.runs.length === 1 ? "" : null }, make("summary", {}, make("strong", {}, run.name)),
      make("dl", { class: "facts" }, ...facts), make("p", {}, "The whole recipe:"),
      make("pre", { tabindex: "0", role: "region", "aria-label": `Recipe of ${run.name}` }, run.recipe));
  }));
}

function showTerms() {
  const terms = {
    AUC: "Chance that a positive scores higher than a negative of the same task; a tie counts half.",
    pAUC: `Area under the ROC curve over false positive rates up to ${LIMIT}, standardized by McClish: 1 is perfect, 0.5 is chance.`,
    AP: "Average precision: the mean precision at the scores of a task's positives.",
    ...(SELECTED_TOO.length ? { "weights selected by": page.select_meaning } : {}),
    threshold: `The lowest logit that at most ${LIMIT} of a task's validation negatives exceed; rows above it are called positive.`,
    "FPR, TPR": "Shares of the test negatives and test positives above that threshold.",
    "mean over tasks": "Over the tasks with both classes among the test rows.",
    "tracked threshold": "The estimate that a partial AUC method keeps, during training, of a quantile of the scores of a task's training negatives.",
  };
  byId("terms").replaceChildren(...Object.entries(terms).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
}
