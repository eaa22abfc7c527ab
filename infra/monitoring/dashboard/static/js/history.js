// What was, of the experiments that are drawn: from the metrics topic, and since then
// from the snapshots.

import { groupOf } from "./model.js";
import { startOf } from "./series.js";
import { ask } from "./stream.js";

const POINTS = 2000;
/** Points since then are exact, and many: they are exchanged for the topic's. */
const AGAIN_S = 20;
const PIECE_S = 1;

export class Histories {
  /** `changed` is called when there is something new to draw. */
  constructor(changed) {
    this._changed = changed;
    this._known = new Map();
    this._rangeS = "";
  }

  /** Why something is missing; "" when nothing is. */
  get problem() {
    const problems = [...this._known].filter(([, each]) => each.problem);
    return problems.map(([name, each]) => `${name}: ${each.problem}`).join("; ");
  }

  /** Keep the past of these experiments, of the last `rangeS` seconds, and of no other. */
  want(names, rangeS) {
    if (rangeS !== this._rangeS) this._known.clear();
    this._rangeS = rangeS;
    for (const name of this._known.keys()) {
      if (!names.includes(name)) this._known.delete(name);
    }
    for (const name of names) {
      if (!this._known.has(name)) this._known.set(name, new Past(name));
    }
    this.renew();
  }

  /** Take in a snapshot. */
  add(snapshot) {
    for (const view of snapshot.experiments) {
      this._known.get(view.experiment)?.add(snapshot, view);
    }
    this.renew();
  }

  /** Ask again for what is old, or for all. */
  renew(all = false) {
    for (const past of this._known.values()) {
      if (all || past.isOld) past.load(this._rangeS).then(this._changed);
    }
  }

  /** Return `{t, series, startS}` of an experiment. */
  of(name) {
    return this._known.get(name)?.all ?? { t: [], series: {}, startS: null };
  }
}

class Past {
  constructor(name) {
    this._name = name;
    this._askedAt = -Infinity;
    this._isAsked = false;
    this._told = { t: [], series: {} };
    this._since = [];
    this._runId = null;
    this._evaluated = undefined;
    this.problem = "";
  }

  get isOld() {
    return !this._isAsked && performance.now() - this._askedAt > AGAIN_S * 1000;
  }

  async load(rangeS) {
    if (this._isAsked) return;
    this._isAsked = true;
    this._askedAt = performance.now();
    const range = rangeS === "all" ? {} : { last_s: rangeS };
    try {
      const found = await ask("history", { experiment: this._name, points: POINTS, ...range });
      const end = found.t.at(-1) ?? -Infinity;
      this._told = found;
      // A long past is read from its end, and comes in pieces.
      if (found.complete === false) this._askedAt -= (AGAIN_S - PIECE_S) * 1000;
      this._since = this._since.filter((each) => each.t > end);
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    }
    this._isAsked = false;
    this._all = null;
  }

  add(snapshot, view) {
    if (this._runId !== null && this._runId !== view.run_id) {
      this._told = { t: [], series: {} };
      this._since = [];
      this._askedAt = -Infinity;
    }
    this._runId = view.run_id;
    const last = this._since.at(-1)?.t ?? this._told.t.at(-1) ?? -Infinity;
    if (snapshot.at_s <= last) return;
    const now = values(snapshot, view);
    // An evaluation stays the newest for a while: it is one point.
    if (now.eval_return === this._evaluated) now.eval_return = null;
    else this._evaluated = now.eval_return;
    this._since.push({ t: snapshot.at_s, ...now });
    // While the topic cannot be read there is an end to what is kept.
    if (this._since.length > 2 * POINTS) this._since = this._since.slice(-POINTS);
    this._all = null;
  }

  get all() {
    if (this._all) return this._all;
    const t = [...this._told.t, ...this._since.map((each) => each.t)];
    const names = new Set([...Object.keys(this._told.series), ...Object.keys(this._since[0] ?? {})]);
    names.delete("t");
    const empty = new Array(this._told.t.length).fill(null);
    const series = {};
    for (const name of names) {
      const before = this._told.series[name] ?? empty;
      series[name] = [...before, ...this._since.map((each) => each[name] ?? null)];
    }
    const runId = this._runId ?? this._told.run_id;
    return (this._all = { t, series, startS: startOf(runId) });
  }
}

/** What a snapshot adds, by the names of the series. */
function values(snapshot, view) {
  const processor = groupOf(snapshot, view.experiment, "processor");
  const learner = groupOf(snapshot, view.experiment, "learner");
  return {
    return: view.is_greedy ? null : view.mean_return,
    eval_return: view.is_greedy ? view.mean_return : null,
    env_steps: view.env_steps,
    env_steps_per_s: view.env_steps_per_s,
    updates_per_s: view.updates_per_s,
    loss: view.loss,
    policy_lag_versions: view.experience.policy_lag_versions.mean ?? null,
    data_age_s: view.experience.data_age_s.p50 ?? null,
    lag_trajectories: processor?.lag ?? null,
    lag_replay: learner?.lag ?? null,
    lag_s_trajectories: processor?.lag_s ?? null,
    lag_s_replay: learner?.lag_s ?? null,
  };
}
