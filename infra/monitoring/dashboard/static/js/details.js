// What is shown of one experiment, besides its picture and its curves.

import { el, keyed, setAttribute, setText, show } from "./dom.js";
import { count, figure, rate, seconds, UNKNOWN } from "./format.js";
import {
  compareBadness, figures, glance, groupsOf, level, silence, SILENT_S, stateLevel,
} from "./model.js";
import { Table } from "./table.js";

const at = (id) => document.getElementById(id);
// Of each role: the counter whose rate says most, and what it counts.
const RATES = {
  worker: ["env_steps", "steps"], processor: ["batches", "batches"],
  learner: ["updates", "updates"], archiver: ["records", "records"],
};

/** The head, the four answers and the figures. */
export function showFacts(snapshot, view) {
  setText(at("name"), view.experiment);
  setText(at("state"), view.state || "unknown");
  setAttribute(at("state"), "data-level", stateLevel(view.state));
  setText(at("reason"), view.reason);
  setText(at("run"), [`run ${view.run_id}`, view.managed_by && `by ${view.managed_by}`]
    .filter(Boolean).join(" · "));
  keyed(at("glance"), glance(snapshot, view), {
    key: (each) => each.title,
    make: ({ title }) => el("article", { class: "card answer" },
      el("h2", {}, el("span", { class: "dot" }), title), el("p", { class: "big" }), el("p", { class: "evidence" })),
    update: (node, each) => {
      setAttribute(node, "data-level", each.level);
      setAttribute(node.querySelector(".dot"), "data-level", each.level);
      setText(node.children[1], each.answer);
      setText(node.children[2], each.evidence);
    },
  });
  keyed(at("figures"), figures(view), {
    key: ([label]) => label,
    make: ([label, , field]) => {
      const value = el("dd");
      value.dataset.field = field;
      return el("dl", {}, el("dt", { text: label }), value);
    },
    update: (node, [, text]) => setText(node.lastChild, text),
  });
}

/** Experiments side by side. */
export class Comparison {
  constructor() {
    const number = (title, text, field) => ({ title, text, field, isNumber: true });
    this._table = new Table(at("comparison"), [
      { title: "Experiment", isHead: true, fill: (cell, { view, place }) => {
        if (!cell.firstChild) cell.append(el("i"), el("span"));
        cell.dataset.colour = place;
        setText(cell.lastChild, view.experiment);
      } },
      { title: "State", isPill: true, text: ({ view }) => view.state,
        level: ({ view }) => stateLevel(view.state) },
      number("Return", ({ view }) => figure(view.mean_return), "mean_return"),
      number("Env steps", ({ view }) => count(view.env_steps), "env_steps"),
      number("Steps/s", ({ view }) => rate(view.env_steps_per_s), "env_steps_per_s"),
      number("Updates", ({ view }) => count(view.updates), "updates"),
      number("Loss", ({ view }) => figure(view.loss), "loss"),
      number("Policy lag", ({ view }) => figure(view.experience.policy_lag_versions.mean)),
      number("Data age", ({ view }) => seconds(view.experience.data_age_s.p50)),
      number("Lag", ({ worst }) => count(worst?.lag), "lag"),
      number("Lost", ({ view }) => count(view.experience.lost_steps), "lost_steps"),
      { title: "Worst group", isPill: true, text: ({ worst }) => worst?.verdict?.state ?? "",
        level: ({ worst }) => level(worst?.verdict) },
    ], { key: ({ view }) => view.experiment, caption: "Experiments side by side" });
  }

  /** Show the named ones; one alone is not compared. */
  show(snapshot, names) {
    const rows = names.flatMap((name, place) => {
      const view = snapshot.experiments.find((each) => each.experiment === name);
      const worst = groupsOf(snapshot, name).sort(compareBadness)[0];
      return view ? [{ view, worst, place }] : [];
    });
    show(at("comparison-section"), rows.length > 1);
    if (rows.length > 1) this._table.show(rows);
  }
}

/** The processes of a run. */
export class Processes {
  constructor() {
    this._table = new Table(at("processes"), [
      { title: "Process", isHead: true, text: ({ process: p }) => `${p.role}/${p.index}` },
      { title: "Does", isNumber: true, text: ({ process }) => does(process) },
      { title: "Policy", isNumber: true, text: ({ process: p }) => count(p.values.policy_version) },
      { title: "Adopted in", isNumber: true, text: ({ adoption }) => seconds(adoption) },
      { title: "Heard", isNumber: true, text: ({ silent }) => `${seconds(silent)} ago`,
        level: ({ silent, isRunning }) => (isRunning && silent > SILENT_S ? "bad" : null) },
    ], {
      key: ({ process: p }) => `${p.role}/${p.index}`, caption: "Processes",
      nothing: "Nothing was heard of any process of this run.",
    });
  }

  /** Show an experiment's. */
  show(snapshot, view) {
    const { adoption_s: adoption } = view.experience;
    this._table.show(view.processes.map((process) => ({
      process, silent: silence(snapshot, process), isRunning: view.state === "running",
      adoption: process.role === "worker" ? adoption[`w${process.index}`] : undefined,
    })));
  }
}

function does({ role, rates }) {
  const [counter, noun] = RATES[role] ?? [];
  return rates[counter] === undefined ? UNKNOWN : rate(rates[counter], noun);
}
