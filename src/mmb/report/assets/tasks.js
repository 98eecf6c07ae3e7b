"use strict";
// The table of tasks, and one task in detail.

let tableRun = page.runs.findIndex((run) => run.method === ranked()[0].index); // of the best method
let chosenTask = 0;
let taskTable = null;

function showTable() {
  const names = page.tasks.name;
  const ofData = (key) => (task) => page.tasks[key][task];
  const ofRun = (key) => (task) => page.runs[tableRun].tasks[key][task];
  const count = (title, key, hint) => ({ title, hint, digits: 0, key: ofData(key) });
  const value = (title, key, hint) => ({ title, hint, digits: 3, key: ofRun(key) });
  const areas = {
    auc: value(page.titles.auc, "auc", "On test rows"),
    pauc: value(page.titles.pauc, "pauc", `On test rows, FPR up to ${LIMIT}, McClish-standardized`),
  };
  const columns = [
    { title: "Task", text: true, key: (task) => names[task], hint: "Name of the task" },
    areas[MAIN], areas[OTHER],
    count("Test +", "test_positives", "Positives among the test rows"),
    count("Test −", "test_negatives", "Negatives among the test rows"),
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
    "title to sort, a task's name to see its curves.";
  fillSelect(byId("table-run"), page.runs.map((run) => run.name));
  byId("table-run").value = String(tableRun);
  byId("table-run").addEventListener("change", (event) => {
    tableRun = Number(event.target.value);
    taskTable.arrange();
  });
  byId("table-filter").addEventListener("input", (event) => taskTable.filterBy(event.target.value));
}

function showTaskChoice() {
  const names = page.tasks.name;
  byId("task-names").replaceChildren(...names.map((name) => make("option", { value: name })));
  byId("task-choice").addEventListener("change", (event) => {
    const wanted = event.target.value;
    const exact = names.indexOf(wanted);
    const found = exact >= 0 ? exact : names.findIndex((name) => matches(name, wanted));
    chooseTask(found >= 0 ? found : chosenTask);
  });
  byId("task-before").addEventListener("click", () => chooseTask((chosenTask + names.length - 1) % names.length));
  byId("task-after").addEventListener("click", () => chooseTask((chosenTask + 1) % names.length));
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
  byId("task-choice").value = page.tasks.name[task];
  byId("task-name").textContent = page.tasks.name[task];
  taskTable.mark(task);
  showRoc();
  showReliability();
  showTaskValues();
  showTracked();
}

// Pairs of uint16, little-endian; 65535 is a rate of one.
function decodeCurve(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const rates = Array.from({ length: bytes.length / 2 }, (_, k) => (bytes[2 * k] + 256 * bytes[2 * k + 1]) / 65535);
  return { fpr: rates.filter((_, k) => k % 2 === 0), tpr: rates.filter((_, k) => k % 2 === 1) };
}

const DIAGONAL = { x: [0, 1], y: [0, 1], color: "var(--quiet)", dashed: "2 4" };

function showRoc() {
  const task = chosenTask;
  byId("roc-chart").setAttribute("aria-label", `ROC curves of ${page.tasks.name[task]}; the tables below have the numbers`);
  const right = byId("roc-zoom").checked ? LIMIT : 1;
  const at = (fpr, tpr) => `FPR ${number(fpr)}, TPR ${number(tpr)}`;
  const runs = page.runs.filter((run) => run.roc[task]);
  draw("roc-chart", () => ({
    x: { title: "false positive rate", range: [0, right] },
    y: { title: "true positive rate", range: [0, 1] },
    band: [0, LIMIT],
    missing: runs.length ? null : "No curve: the test rows lack a class",
    lines: [DIAGONAL, ...runs.map((run) => {
      const { fpr, tpr } = decodeCurve(run.roc[task]);
      return { x: fpr, y: tpr, method: run.method, name: run.name, label: page.methods[run.method].name, say: at };
    })],
    points: runs.filter((run) => known(run.tasks.fpr[task])).map((run) => ({
      x: run.tasks.fpr[task], y: run.tasks.tpr[task], low: run.tasks.tpr_low[task], high: run.tasks.tpr_high[task], method: run.method, ring: true,
      text: `${run.name}, at its threshold: ${at(run.tasks.fpr[task], run.tasks.tpr[task])}`,
    })),
  }));
}

// Ends of Wilson's 95% interval of a share.
function wilson(share, rows) {
  const z = 1.96;
  const middle = (share + z * z / (2 * rows)) / (1 + z * z / rows);
  const reach = (z * Math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))) / (1 + z * z / rows);
  return [middle - reach, middle + reach];
}

function showReliability() {
  const task = chosenTask;
  byId("reliability-chart").setAttribute("aria-label", `Reliability of the probabilities of ${page.tasks.name[task]}`);
  const runs = page.runs.filter((run) => run.reliability[task].length);
  draw("reliability-chart", () => {
    const top = Math.min(1, 1.05 * Math.max(0.05, ...runs.flatMap((run) => run.reliability[task].flatMap(([p, share, rows]) => [p, wilson(share, rows)[1]]))));
    return {
      x: { title: "mean probability in the bin", range: [0, top] },
      y: { title: "share of positives", range: [0, top] },
      missing: runs.length ? null : "No labeled test rows",
      lines: [DIAGONAL, ...runs.map((run) => ({
        x: run.reliability[task].map(([p]) => p), y: run.reliability[task].map(([, share]) => share), method: run.method, label: page.methods[run.method].name,
      }))],
      points: runs.flatMap((run) => run.reliability[task].map(([p, share, rows]) => {
        const [low, high] = wilson(share, rows);
        return { x: p, y: share, low, high, method: run.method, text: `${run.name}: probability ${number(p)}, positives ${number(share)} (${range(low, high)}) of ${several(rows, "row")}` };
      })),
    };
  });
}

function showTaskValues() {
  const task = chosenTask;
  const counts = `${several(page.tasks.test_positives[task], "positive")} and ${several(page.tasks.test_negatives[task], "negative")} among the test rows`;
  const withEnds = (run, name) => {
    const value = number(run.tasks[name][task]);
    const low = run.tasks[`${name}_low`][task];
    return known(low) ? `${value} (${range(low, run.tasks[`${name}_high`][task])})` : value;
  };
  plainTable(byId("task-values"), `${page.tasks.name[task]}: ${counts}. 95% intervals cover the noise of these rows.`,
    ["run", METRICS[MAIN], METRICS[OTHER], ...WITHOUT_INTERVAL.map((metric) => METRICS[metric])],
    page.runs.map((run) => [run.name, withEnds(run, MAIN), withEnds(run, OTHER), ...WITHOUT_INTERVAL.map((name) => number(run.tasks[name][task]))]));
  plainTable(byId("task-points"), `Operating points on test rows, with exact 95% intervals. Rings in the ROC curve mark the first threshold. The second keeps FPR ≤ ${LIMIT} with a confidence of 95%; it is missing where validation negatives are too few to promise that.`,
    ["run", "threshold", "FPR", "TPR", "threshold with a promise", "FPR", "TPR"],
    page.runs.map((run) => [run.name, ...["", "promised_"].flatMap((kind) =>
      [number(run.tasks[`${kind}threshold`][task]), withEnds(run, `${kind}fpr`), withEnds(run, `${kind}tpr`)])]));
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
  draw("tracked-chart", () => ({
    x: { title: "steps" },
    y: { title: "logit" },
    lines: [
      { x: run.tracked.step, y: series("quantile"), color: "var(--quiet)", name: "true quantile", label: "true quantile", dots: true },
      { x: run.tracked.step, y: series("tracked"), method: run.method, dashed: "7 4", name: "tracked", label: "tracked", dots: true },
    ],
  }));
  const percent = (name) => {
    const last = pick(run.tracked[name]);
    return known(last) ? (100 * last).toFixed(1) : "–";
  };
  const few = run.tracked.step.length < 4 ? " Only checkpoints that still exist are shown." : "";
  byId("tracked-note").textContent = `At the last point, ${percent("rate")}% of the training negatives (in a sample of the rows) ` +
    `are above the tracked threshold; smoothed as in training it is ${percent("soft_rate")}%, which tracking brings to its target.${few}`;
}
