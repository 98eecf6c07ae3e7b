"use strict";
// The table of tasks, and one task in detail.

let tableRun = 0;
let chosenTask = 0;
let taskTable = null;

function showTable() {
  const names = page.tasks.name;
  const ofData = (key) => (task) => page.tasks[key][task];
  const ofRun = (key) => (task) => page.runs[tableRun].tasks[key][task];
  const count = (title, key, hint) => ({ title, hint, digits: 0, key: ofData(key) });
  const value = (title, key, hint) => ({ title, hint, digits: 3, key: ofRun(key) });
  const columns = [
    { title: "Task", text: true, key: (task) => names[task], hint: "Name of the task" },
    count("Test +", "test_positives", "Positives among the test rows"),
    count("Test −", "test_negatives", "Negatives among the test rows"),
    value(page.titles.auc, "auc", "On test rows"),
    value(page.titles.pauc, "pauc", `On test rows, FPR up to ${LIMIT}, McClish-standardized`),
    value(page.titles.ap, "ap", "Average precision on test rows"),
    ...SELECTED_TOO.map((metric) => value(page.titles[metric], metric, page.select_meaning)),
    value("Threshold", "threshold", `Logit at a false positive rate of ${LIMIT} on validation rows`),
    value("FPR", "fpr", "Achieved on test rows at the threshold"),
    value("TPR", "tpr", "Achieved on test rows at the threshold"),
    count("Train +", "train_positives", "Positives among the training rows"),
    count("Train −", "train_negatives", "Negatives among the training rows"),
  ];
  taskTable = new TaskTable(byId("table"), byId("table-scroll"), byId("table-status"), columns, names.length, (task) => {
    chooseTask(task);
    byId("task").scrollIntoView();
  });
  byId("table-note").textContent = `Test rows; pAUC for FPR ≤ ${LIMIT}; thresholds set on validation rows. Press a column's ` +
    "title to sort, a task's name to see its curve.";
  fillSelect(byId("table-run"), page.runs.map((run) => run.name));
  byId("table-run").addEventListener("change", (event) => {
    tableRun = Number(event.target.value);
    taskTable.arrange();
  });
  byId("table-filter").addEventListener("input", (event) => taskTable.filterBy(event.target.value));
}

function showTaskChoice() {
  fillSelect(byId("task-choice"), page.tasks.name);
  byId("task-choice").addEventListener("change", (event) => chooseTask(Number(event.target.value)));
  const count = page.tasks.name.length;
  byId("task-before").addEventListener("click", () => chooseTask((chosenTask + count - 1) % count));
  byId("task-after").addEventListener("click", () => chooseTask((chosenTask + 1) % count));
  byId("roc-zoom-text").textContent = `Zoom to FPR ≤ ${LIMIT}`;
  byId("roc-zoom").addEventListener("change", showRoc);
  const tracking = page.runs.map((run, index) => [run, index]).filter(([run]) => run.tracked.step.length);
  byId("tracked-controls").hidden = byId("tracked-chart").hidden = !tracking.length;
  byId("tracked-run").replaceChildren(...tracking.map(([run, index]) => make("option", { value: index }, run.name)));
  for (const id of ["tracked-run", "tracked-of"]) byId(id).addEventListener("change", showTracked);
  chooseTask(0);
}

function chooseTask(task) {
  chosenTask = task;
  byId("task-choice").value = String(task);
  taskTable.mark(task);
  showRoc();
  showTaskValues();
  showTracked();
}

// Pairs of uint16, little-endian; 65535 is a rate of one.
function decodeCurve(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const rates = Array.from({ length: bytes.length / 2 }, (_, k) => (bytes[2 * k] + 256 * bytes[2 * k + 1]) / 65535);
  return { fpr: rates.filter((_, k) => k % 2 === 0), tpr: rates.filter((_, k) => k % 2 === 1) };
}

function showRoc() {
  const task = chosenTask;
  byId("roc-chart").setAttribute("aria-label", `ROC curves of ${page.tasks.name[task]}; the table below has the numbers`);
  draw("roc-chart", () => {
    const seen = new Set();
    const traces = [{ type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: themeColor("quiet"), dash: "dot", width: 1 }, hoverinfo: "skip", showlegend: false }];
    for (const run of page.runs) {
      if (!run.roc[task]) continue;
      const { fpr, tpr } = decodeCurve(run.roc[task]);
      const line = { ...methodLine(run.method), width: 2 };
      const first = !seen.has(run.method);
      seen.add(run.method);
      traces.push({
        type: "scatter", mode: "lines", x: fpr, y: tpr, line, cliponaxis: byId("roc-zoom").checked, name: label(page.methods[run.method].name), legendgroup: String(run.method), showlegend: first,
        hovertemplate: `${label(run.name)}<br>FPR %{x:.3f}, TPR %{y:.3f}<extra></extra>`,
      }, {
        type: "scatter", mode: "markers", x: [run.tasks.fpr[task]], y: [run.tasks.tpr[task]], legendgroup: String(run.method), showlegend: false, cliponaxis: false,
        marker: { color: line.color, size: 9, symbol: "circle-open", line: { width: 2 } },
        hovertemplate: `${label(run.name)}<br>at its threshold: FPR %{x:.3f}, TPR %{y:.3f}<extra></extra>`,
      });
    }
    const right = byId("roc-zoom").checked ? LIMIT : 1;
    const missing = seen.size ? [] : [{ text: "No curve: the test rows lack a class", showarrow: false, x: right / 2, y: 0.5 }];
    return {
      traces,
      layout: {
        xaxis: axis("false positive rate", { range: [-0.01 * right, 1.01 * right] }), yaxis: axis("true positive rate", { range: [-0.01, 1.01] }),
        shapes: [{ type: "rect", x0: 0, x1: LIMIT, y0: 0, y1: 1, yref: "paper", fillcolor: themeColor("band"), line: { width: 0 }, layer: "below" }],
        annotations: missing,
      },
    };
  });
}

function showTaskValues() {
  const task = chosenTask;
  const counts = `${page.tasks.test_positives[task]} positives and ${page.tasks.test_negatives[task]} negatives among the test rows`;
  const area = (run, name) => {
    const low = run.tasks[`${name}_low`][task];
    const value = number(run.tasks[name][task]);
    return known(low) ? `${value} (${range(low, run.tasks[`${name}_high`][task])})` : value;
  };
  plainTable(byId("task-values"), `${page.tasks.name[task]}: ${counts}. 95 % intervals cover the noise of these rows. Rings in the chart mark thresholds.`,
    ["run", METRICS.auc, METRICS.pauc, ...WITHOUT_INTERVAL.map((metric) => METRICS[metric]), "threshold", "FPR", "TPR"],
    page.runs.map((run) => [run.name, area(run, "auc"), area(run, "pauc"),
      ...[...WITHOUT_INTERVAL, "threshold", "fpr", "tpr"].map((name) => number(run.tasks[name][task]))]));
}

function showTracked() {
  const chosen = byId("tracked-run").value;
  if (chosen === "") {
    byId("tracked-note").textContent = "No run on this page tracks thresholds; partial AUC methods do.";
    return;
  }
  const run = page.runs[Number(chosen)];
  const ofMean = byId("tracked-of").value === "mean";
  const mean = (values) => {
    const there = values.filter(known);
    return there.length ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
  };
  const pick = (values) => (ofMean ? mean(values) : values[chosenTask]);
  const series = (name) => run.tracked[name].map(pick);
  draw("tracked-chart", () => {
    const line = methodLine(run.method);
    const mode = run.tracked.step.length > 60 ? "lines" : "lines+markers";
    return {
      traces: [
        { type: "scatter", mode, x: run.tracked.step, y: series("quantile"), name: "true quantile", line: { color: themeColor("quiet"), width: 2 } },
        { type: "scatter", mode, x: run.tracked.step, y: series("tracked"), name: "tracked", line: { ...line, dash: "dash" } },
      ],
      layout: { xaxis: axis("steps"), yaxis: axis("logit"), hovermode: "x unified", showlegend: true },
    };
  });
  const percent = (name) => {
    const last = pick(run.tracked[name]);
    return known(last) ? (100 * last).toFixed(1) : "–";
  };
  const few = run.tracked.step.length < 4 ? " Only checkpoints that still exist are shown." : "";
  byId("tracked-note").textContent = `At the last point, ${percent("rate")} % of the training negatives (in a sample of the rows) ` +
    `are above the tracked threshold; smoothed as in training it is ${percent("soft_rate")} %, which tracking brings to its target.${few}`;
}
