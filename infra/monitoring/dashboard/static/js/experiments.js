// The list of experiments: which one is shown, and with which it is compared.

import { el, keyed, setAttribute, setText, show } from "./dom.js";
import { count, figure, many, rate } from "./format.js";
import { compareBadness, groupsOf, level, stateLevel } from "./model.js";

const FILTER_FROM = 8;
const at = (id) => document.getElementById(id);

export class Experiments {
  constructor(selection) {
    this._selection = selection;
    this._list = at("experiments");
    this._filter = at("experiments-filter");
    this._filter.addEventListener("input", () => this._snapshot && this.show(this._snapshot));
  }

  /** Show all that a snapshot has. */
  show(snapshot) {
    this._snapshot = snapshot;
    const all = snapshot.experiments;
    const wanted = this._filter.value.trim().toLowerCase();
    show(this._filter, all.length >= FILTER_FROM);
    show(at("no-experiments"), all.length === 0);
    setText(at("experiments-count"), all.length || "");
    keyed(this._list, all.filter((each) => each.experiment.includes(wanted)), {
      key: (view) => view.experiment,
      make: (view) => this._make(view.experiment),
      update: (node, view) => this._write(node, snapshot, view),
    });
  }

  _make(name) {
    const compare = el("input", { type: "checkbox", "aria-label": `Compare with ${name}` });
    compare.addEventListener("change", () => this._selection.compare(name, compare.checked));
    const choose = el(
      "button", { type: "button" },
      el("span", { class: "dot" }), el("span", { class: "name", text: name }),
      el("span", { class: "facts" }), el("span", { class: "facts" }),
    );
    choose.addEventListener("click", () => this._selection.show(name));
    const node = el("li", {}, choose, el("label", { class: "compare", title: "Compare" }, compare));
    node.dataset.experiment = name;
    return node;
  }

  _write(node, snapshot, view) {
    const { drawn, focus, compared } = this._selection;
    const [choose, label] = node.children;
    const [dot, , first, second] = choose.children;
    const worst = groupsOf(snapshot, view.experiment).sort(compareBadness)[0];
    const isFocus = view.experiment === focus;
    setAttribute(choose, "aria-current", isFocus ? "true" : null);
    setAttribute(dot, "data-level", howBad(view, worst));
    const pace = view.env_steps_per_s === null
      ? `${count(view.env_steps)} steps`
      : rate(view.env_steps_per_s, "steps");
    setText(first, `return ${figure(view.mean_return)} · ${pace}`);
    const alerts = view.alerts.length ? ` · ${many(view.alerts.length, "alert")}` : "";
    setText(second, `${view.state || "unknown"} · lag ${count(worst?.lag)}${alerts}`);
    const box = label.firstElementChild;
    box.checked = isFocus || compared.includes(view.experiment);
    box.disabled = isFocus;
    const place = drawn.indexOf(view.experiment);
    setAttribute(label, "data-colour", drawn.length > 1 && place >= 0 ? place : null);
  }
}

function howBad(view, worst) {
  const levels = [level(worst?.verdict), stateLevel(view.state), view.alerts.length ? "bad" : ""];
  return ["bad", "warn", "ok"].find((each) => levels.includes(each)) ?? "";
}
