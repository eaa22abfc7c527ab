// The charts: which there are, what they draw, and what is common to them.

import { show } from "./dom.js";
import { count, figure, rate, seconds } from "./format.js";
import { Chart } from "./chart.js";
import { soon } from "./frames.js";
import { compact, onAxis } from "./series.js";

// By series: its name in the history, and in the legend. The second is drawn dashed.
const CHARTS = [
  { key: "return", title: "Mean return", format: figure, isFree: true,
    series: [["return", "exploring"], ["eval_return", "greedy"]] },
  { key: "steps", title: "Env steps per second", format: rate,
    series: [["env_steps_per_s", ""]] },
  { key: "lag", title: "Lag, records", format: count,
    series: [["lag_trajectories", "processors"], ["lag_replay", "learner"]] },
  { key: "lag-s", title: "Lag, seconds", format: seconds,
    series: [["lag_s_trajectories", "processors"], ["lag_s_replay", "learner"]] },
  { key: "policy-lag", title: "Policy lag, versions", format: figure,
    series: [["policy_lag_versions", ""]] },
  { key: "data-age", title: "Age of data when learnt from", format: seconds,
    series: [["data_age_s", ""]] },
  { key: "loss", title: "Loss", format: figure, series: [["loss", ""]] },
  { key: "updates", title: "Updates per second", format: rate,
    series: [["updates_per_s", ""]] },
];
const SPARSE = new Set(["eval_return"]);

export const RANGES = [
  ["900", "15 min"], ["3600", "1 h"], ["21600", "6 h"], ["86400", "24 h"], ["all", "All"],
];
export const AXES = [["time", "Time"], ["age", "Since start"], ["steps", "Env steps"]];

export class Curves {
  constructor(parent, unzoom) {
    this._unzoom = unzoom;
    this._charts = CHARTS.map((of) => new Chart(parent, of, (range) => this._zoom(range)));
    this._range = null;
    unzoom.addEventListener("click", () => this._zoom(null));
  }

  /** Draw experiments over an axis; `histories` has their past. */
  draw(names, histories, axis) {
    this._drawing = { names, histories, axis };
    const known = `${names.join()} ${axis}`;
    if (this._known !== known) this._zoom(null);
    this._known = known;
    this._charts.forEach((chart) => this._soon(chart));
  }

  /** Other colours hold now. */
  recolour() {
    this._charts.forEach((chart) => {
      chart.forget();
      this._soon(chart);
    });
  }

  _soon(chart) {
    if (!this._drawing || document.hidden) return;
    soon(chart.of.key, () => {
      const pasts = this._pasts();
      const range = this._range ?? reach(pasts);
      chart.draw(lines(chart.of, pasts), this._drawing.axis, range);
    });
  }

  _pasts() {
    const { names, histories, axis } = this._drawing;
    return names.map((name) => {
      const { t, series, startS } = histories.of(name);
      const x = t.length ? onAxis(axis, t, series.env_steps, startS) : [];
      return { name, x, series, isSparse: axis === "steps" };
    });
  }

  _zoom(range) {
    this._range = range;
    show(this._unzoom, range !== null);
    this._charts.forEach((chart) => this._soon(chart));
  }
}

// All charts have the same x, so that what happened together lies together.
function reach(pasts) {
  const ends = pasts.filter(({ x }) => x.length).map(({ x }) => [x[0], x[x.length - 1]]);
  if (!ends.length) return [0, 1];
  return [Math.min(...ends.map(([least]) => least)), Math.max(...ends.map(([, most]) => most))];
}

function lines({ series }, pasts) {
  const isAlone = pasts.length === 1;
  return pasts.flatMap(({ name, x, series: past, isSparse }, number) =>
    series.map(([key, label], place) => ({
      // Alone, an experiment's series have colours of their own.
      colour: isAlone ? place : number,
      isDashed: !isAlone && place > 0,
      label: [isAlone ? "" : name, label].filter(Boolean).join(" "),
      curve: compact(x, past[key] ?? [], SPARSE.has(key) || isSparse),
      hasDots: SPARSE.has(key),
    })));
}
