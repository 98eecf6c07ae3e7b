"use strict";
// The answer, methods side by side, verdicts, learning curves, what was run.

const page = JSON.parse(byId("data").textContent);
const LIMIT = page.max_fpr;
const METRICS = { ...page.titles, pauc: `${page.titles.pauc} (FPR ≤ ${LIMIT})` };
const MAIN = page.main;
const OTHER = MAIN === "auc" ? "pauc" : "auc"; // the other one with intervals
const WITHOUT_INTERVAL = Object.keys(METRICS).filter((name) => !["auc", "pauc"].includes(name));
const SELECTED_TOO = WITHOUT_INTERVAL.filter((name) => name !== "ap"); // one of its own, if any
const SIGNIFICANT = 0.05;
const several = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function showTitle() {
  byId("title").textContent = `${page.data}: ${several(page.runs.length, "run")}, ${several(page.tasks.name.length, "task")}`;
  const rows = Object.entries(page.sizes).map(([part, count]) => `${count.toLocaleString("en")} ${part}`).join(", ");
  byId("subtitle").textContent = `Rows: ${rows}. Written ${page.written} by mmb ${page.version}.`;
  byId("answer-what").textContent = page.answer.what;
  byId("answer-sure").textContent = page.answer.sure;
}

// Best first, by the main metric; those without a value last.
function ranked() {
  const value = (method) => method[MAIN].value ?? -Infinity;
  return page.methods.map((method, index) => ({ ...method, index })).sort((a, b) => value(b) - value(a));
}

const clearly = (found) => known(found) && found < SIGNIFICANT;
const inPair = (pair) => `${page.methods[pair.a].name} − ${page.methods[pair.b].name}`;

function showComparison() {
  const withArea = (area) => `${number(area.value)} (${range(area.low, area.high)})`;
  const meanOf = (metric, index) => {
    const values = page.runs.filter((run) => run.method === index).map((run) => run.means[metric]).filter(known);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  };
  const spread = page.methods.some((method) => method.runs > 1);
  plainTable(byId("methods"), "Mean over tasks on test rows, with 95% interval",
    ["method", METRICS[MAIN], METRICS[OTHER], ...WITHOUT_INTERVAL.map((metric) => METRICS[metric]), "runs",
      ...(spread ? [MAIN, OTHER].map((metric) => `${page.titles[metric]}: spread over runs`) : [])],
    ranked().map((method) => [
      method.name, withArea(method[MAIN]), withArea(method[OTHER]), ...WITHOUT_INTERVAL.map((metric) => number(meanOf(metric, method.index))),
      String(method.runs), ...(spread ? [number(method[MAIN].spread, 4), number(method[OTHER].spread, 4)] : []),
    ]));
  byId("pairs-part").hidden = !page.pairs.length;
  byId("compare-note").textContent = compareNote();
  if (!page.pairs.length) return;
  plainTable(byId("pairs"), "Differences of means over tasks, the better minus the worse",
    ["difference", "value", "95% interval", "p, adjusted", "significant", "p", "metric"],
    [MAIN, OTHER].flatMap((metric) => page.pairs.map((pair) => {
      const found = pair[metric];
      return [inPair(pair), signed(found.value), range(found.low, found.high, signed), pValue(found.adjusted),
        clearly(found.adjusted) ? "yes" : "no", pValue(found.p), METRICS[metric]];
    })));
  const own = page.pairs.filter((pair) => pair[MAIN].tasks); // those of the winner
  fillSelect(byId("pair-choice"), own.map(inPair));
  byId("pair-metric").replaceChildren(...[MAIN, OTHER].map((metric) => make("option", { value: metric }, METRICS[metric])));
  const redraw = () => showPair(own[Number(byId("pair-choice").value)], byId("pair-metric").value);
  for (const id of ["pair-choice", "pair-metric"]) byId(id).addEventListener("change", redraw);
  redraw();
}

function compareNote() {
  const single = page.methods.filter((method) => method.runs === 1).map((method) => method.name);
  const noise = !single.length ? "Intervals cover the noise of the test rows and of training (seeds)."
    : `Intervals cover the noise of the test rows${single.length < page.methods.length ? "; that of training (seeds) too, except of" : ", not that of training: there is one run each of"} ${single.join(", ")}.`;
  return `${noise} Areas by DeLong's method and its extension to partial areas; all methods are judged on the same rows, so ` +
    "differences are paired. Adjusted p values account for many comparisons: over all pairs of methods and both metrics by " +
    "Holm (any false claim has a chance of at most 5%); over the tasks of one pair by Benjamini and Hochberg (5% of " +
    "the claims are expected to be false). Tasks with fewer than 10 test positives or negatives are not tested.";
}

function showPair(pair, metric) {
  const found = pair[metric].tasks;
  const [a, b] = [page.methods[pair.a].name, page.methods[pair.b].name];
  const tested = page.tasks.name.map((_, task) => task).filter((task) => known(found.low[task]));
  tested.sort((x, y) => found.value[y] - found.value[x]);
  const clear = (task) => clearly(found.adjusted[task]);
  const up = tested.filter((task) => clear(task) && found.value[task] > 0).length;
  const down = tested.filter((task) => clear(task) && found.value[task] < 0).length;
  byId("pair-words").textContent = `Of ${several(tested.length, "task")} tested, ${a} is significantly better on ${up}, ${b} on ${down}; ` +
    `the other ${tested.length - up - down} differences may be noise.`;
  const colorOf = (task) => (clear(task) ? tone(found.value[task] > 0 ? pair.a : pair.b) : "var(--quiet)");
  draw("pair-chart", () => ({
    x: { title: "tasks, the largest difference first", range: [0, tested.length + 1], plain: true },
    y: { title: `${a} − ${b}` },
    zero: true,
    missing: tested.length ? null : "No task has enough test rows",
    keys: [{ label: `${a} significantly better`, method: pair.a }, { label: `${b} significantly better`, method: pair.b },
      { label: "may be noise", color: "var(--quiet)" }],
    points: tested.map((task, place) => ({
      x: place + 1, y: found.value[task], low: found.low[task], high: found.high[task], color: colorOf(task),
      text: `${page.tasks.name[task]}: ${signed(found.value[task])} (${range(found.low[task], found.high[task], signed)}), adjusted p ${pValue(found.adjusted[task])}`,
      choose: () => chooseTask(task),
    })),
  }));
}

const SIGNS = { good: "✓", remark: "!", unknown: "?", bad: "✗" };
const sign = (status) => make("span", { class: `sign ${status}` }, make("span", { "aria-hidden": "true" }, SIGNS[status]),
  make("span", { class: "hidden" }, ` ${status}:`));

// Runs of a method with the same verdict share a line; numbers in it do not count.
function showVerdicts() {
  const kind = (run) => (run.status === "good" ? "Working." : run.verdict);
  byId("verdicts").replaceChildren(...ranked().map((method) => {
    const runs = page.runs.filter((run) => run.method === method.index);
    const kinds = [...new Set(runs.map(kind))].map((verdict) => [verdict, runs.filter((run) => kind(run) === verdict)]);
    const lines = kinds.map(([verdict, same]) => make("span", { class: "verdict" }, sign(same[0].status), " ",
      runs.length === 1 ? runs[0].verdict : `${verdict} (${same.length} of ${several(runs.length, "run")})`));
    return make("details", { open: page.runs.length === 1 ? "" : null },
      make("summary", {}, make("strong", {}, method.name), ...lines),
      ...runs.map((run) => make("div", {}, make("h3", {}, run.name), make("p", {}, run.verdict), make("ul", {}, ...run.checks.map(checked)))));
  }));
}

function checked(one) {
  const title = one.title.charAt(0).toUpperCase() + one.title.slice(1);
  return make("li", {}, sign(one.status), " ", make("strong", {}, `${title}. `), one.text,
    one.advice ? make("span", { class: "advice" }, ` ${one.advice}`) : null);
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

function showCurves() {
  const there = CURVES(page.titles).filter(([kind, name]) => page.runs.some((run) => name in run.curves[kind]));
  fillSelect(byId("curve-choice"), there.map(([, , title]) => title));
  byId("curve-choice").value = String(Math.max(0, there.findIndex(([kind, name]) => kind === "valid" && name === page.select)));
  const redraw = () => {
    const [kind, name, title] = there[Number(byId("curve-choice").value)];
    const across = byId("curve-axis").value;
    draw("curve-chart", () => ({
      x: { title: across === "step" ? "steps" : "seconds" },
      y: { title },
      lines: page.runs.filter((run) => name in run.curves[kind]).map((run) => ({
        x: run.curves[kind][across], y: run.curves[kind][name], method: run.method, name: run.name, label: page.methods[run.method].name,
      })),
    }));
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
    "threshold with a promise": `A logit that at most ${LIMIT} of new negatives exceed, with a confidence of 95%, if they come from where the validation rows come from.`,
    "FPR, TPR": "Shares of the test negatives and test positives above that threshold, with exact intervals (Clopper and Pearson).",
    probability: "As `mmb predict` writes it: calibrated on validation rows. In the diagram, test rows are in bins of equal size, with Wilson's 95% intervals.",
    "mean over tasks": "Over the tasks with both classes among the test rows.",
    "tracked threshold": "The estimate that a partial AUC method keeps, during training, of a quantile of the scores of a task's training negatives.",
  };
  byId("terms").replaceChildren(...Object.entries(terms).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
}
