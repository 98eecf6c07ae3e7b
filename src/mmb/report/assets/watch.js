"use strict";
// Asks for the state of the runs every two seconds, and shows it.

const EVERY = 2000; // milliseconds
let state = null;
let choices = [];

function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

function showState() {
  const { runs, finished } = state;
  const failed = runs.filter((run) => ["failed", "silent"].includes(run.state)).length;
  document.title = `${finished}/${runs.length} ${state.title}`;
  byId("title").textContent = state.title;
  byId("answer-what").textContent = finished === runs.length ? "All runs are finished."
    : known(state.seconds_left) ? `About ${duration(state.seconds_left)} left.` : failed ? "No run is in training." : "The time left is not known yet.";
  byId("answer-sure").textContent = `${finished} of ${runs.length} finished` + (failed ? `, ${failed} failed or without news for long.` : ".");
  plainTable(byId("run-table"), `Verdicts by the logs alone; best validation ${state.titles[state.select]} so far`,
    ["run", "best", "left", "step", "verdict"],
    runs.map((run) => [run.name, number(run.best), run.state === "training" ? duration(run.seconds_left) : run.state,
      known(run.steps) ? `${run.step.toLocaleString("en")} of ${run.steps.toLocaleString("en")}` : "–",
      run.state === "waiting" ? "–" : `${run.verdict} ${run.advice}`]));
  const there = CURVES(state.titles).filter(([kind, name]) => runs.some((run) => name in run.curves[kind]));
  if (there.length !== choices.length) {
    choices = there;
    fillSelect(byId("curve-choice"), choices.map(([, , title]) => title));
    byId("curve-choice").value = String(Math.max(0, choices.findIndex(([kind, name]) => kind === "valid" && name === state.select)));
  }
  showCurves();
}

function showCurves() {
  if (!choices.length) return;
  const [kind, name, title] = choices[Number(byId("curve-choice").value)];
  const across = byId("curve-axis").value;
  draw("curve-chart", () => ({
    x: { title: across === "step" ? "steps" : "seconds" },
    y: { title },
    lines: state.runs.filter((run) => name in run.curves[kind]).map((run) => ({
      x: run.curves[kind][across], y: run.curves[kind][name], method: run.method, name: run.name, label: state.methods[run.method],
    })),
  }));
}

async function ask() {
  try {
    const answer = await fetch(`data${location.search}`);
    if (!answer.ok) throw new Error(await answer.text());
    state = await answer.json();
    showState();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    byId("answer-sure").textContent = `No news: ${error.message}. Is \`mmb watch\` still running?`;
  }
  setTimeout(ask, EVERY);
}

for (const id of ["curve-choice", "curve-axis"]) byId(id).addEventListener("change", showCurves);
ask();
