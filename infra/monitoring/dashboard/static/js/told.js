// What somebody should know: alerts, and of one experiment its events and dead letters.

import { el, keyed, setAttribute, setText, show } from "./dom.js";
import { count, many, seconds } from "./format.js";
import { ruleOf } from "./model.js";
import { ask } from "./stream.js";
import { Table } from "./table.js";

const AGAIN_S = 10;
const LEVELS = { alert: "bad", warning: "warn", info: "" };
const at = (id) => document.getElementById(id);

/** Alerts of all experiments; new ones are read out. */
export class Alerts {
  constructor(choose) {
    this._choose = choose;
    this._known = null;
  }

  /** Show what is on. */
  show(snapshot) {
    const all = snapshot.experiments.flatMap((view) =>
      view.alerts.map((alert) => ({ ...alert, experiment: view.experiment })));
    keyed(at("alerts"), all, {
      key: keyOf, make: (alert) => this._make(alert), update: (node, alert) => write(node, alert),
    });
    setText(at("alerts-count"), all.length || "");
    show(at("alerts-section"), all.length > 0);
    this._announce(all);
  }

  _make({ experiment }) {
    const name = el("button", { type: "button", class: "link" });
    name.addEventListener("click", () => this._choose(experiment));
    return el("li", {}, el("span", { class: "pill" }), name, el("span", { class: "who" }),
      el("p", { class: "reason" }), el("span", { class: "age" }));
  }

  _announce(all) {
    const keys = new Set(all.map(keyOf));
    const fresh = all.filter((each) => this._known && !this._known.has(keyOf(each)));
    this._known = keys;
    if (fresh.length) {
      const said = fresh.slice(0, 3).map((each) => `${each.experiment}: ${each.reason}`);
      setText(at("announcements"), `${many(fresh.length, "new alert")}. ${said.join(". ")}`);
    }
  }
}

// As whoever folds the events tells alerts apart: the figures in a reason change.
const keyOf = (alert) =>
  JSON.stringify([alert.experiment, alert.role, alert.index, ruleOf(alert).rule]);

function write(node, alert) {
  const [pill, name, who, reason, age] = node.children;
  const { rule, why } = ruleOf(alert);
  setText(pill, rule);
  setAttribute(pill, "data-level", LEVELS[alert.severity] ?? "bad");
  setText(name, alert.experiment);
  setText(who, alert.role);
  setText(reason, why);
  setText(age, `for ${seconds(alert.age_ms / 1000)}`);
}

/** A table of an experiment's that is asked for now and then. */
class Asked {
  constructor(path, field, limit, table, nothing) {
    Object.assign(this, { path, field, limit, table, nothing });
    this._askedAt = -Infinity;
  }

  /** Show an experiment's; `sign` changes when there is something new. */
  show(experiment, sign) {
    const now = performance.now();
    const isNew = experiment !== this._experiment || sign !== this._sign;
    const isDue = now - this._askedAt > AGAIN_S * 1000;
    if (experiment !== this._experiment) this.table.show([]);
    if (!(isNew || isDue)) return;
    Object.assign(this, { _experiment: experiment, _sign: sign, _askedAt: now });
    ask(this.path, { experiment, limit: this.limit }).then(
      (found) => experiment === this._experiment && this.table.show(found[this.field]),
      () => {}, // the banner says that nothing answers; what is shown stays
    );
  }
}

/** Records that could not be used. */
export class Letters extends Asked {
  constructor() {
    const columns = [
      { title: "From", isHead: true, kind: "wide",
        text: (each) => `${each.source.split(".").at(-1)}[${each.partition}]@${each.offset}`,
        hint: (each) => each.source },
      { title: "Age", isNumber: true, text: (each) => seconds(each.age_s) },
      { title: "Error", kind: "long", text: (each) => each.error, field: "error" },
      { title: "", isPill: true, text: (each) => (each.reinjected ? "put back" : ""),
        level: () => "ok", hint: (each) => each.reinjected },
    ];
    const table = new Table(at("letters"), columns, {
      key: (each) => `${each.source} ${each.partition} ${each.offset}`,
      caption: "Dead letters", nothing: "None: every record could be used.",
    });
    super("dead-letters", "letters", 50, table);
  }

  show(view) {
    setText(at("letters-count"), view.dead_letters ? count(view.dead_letters) : "");
    super.show(view.experiment, view.dead_letters);
  }
}

/** What was told of it lately. */
export class Events extends Asked {
  constructor() {
    const columns = [
      { title: "Age", isNumber: true, text: (each) => seconds(each.age_s) },
      { title: "Kind", isPill: true, text: (each) => each.kind,
        level: (each) => LEVELS[each.severity] ?? "" },
      { title: "Who", text: (each) => `${each.role}/${each.index}` },
      { title: "Reason", kind: "long", text: (each) => each.reason, field: "reason" },
    ];
    const table = new Table(at("events"), columns, {
      key: (each) => `${each.offset}`, caption: "Events",
      nothing: "Nothing was told.",
    });
    super("events", "events", 100, table);
  }

  show(view) {
    super.show(view.experiment, `${view.run_id} ${view.state} ${view.alerts.length}`);
  }
}
