// All consumer groups, also those of others: the worst first.

import { el, setAttribute, setText, show } from "./dom.js";
import { count, many, rate, seconds, share } from "./format.js";
import { compareBadness, largest, level, sum } from "./model.js";
import { Table } from "./table.js";

const MOST = 40;
const at = (id) => document.getElementById(id);
const number = (title, text, field) => ({ title, text, field, isNumber: true });

// Of a group its partitions' sums, and of a partition itself.
const FIGURES = [
  number("Lag", (each) => count(each.lag), "lag"),
  number("Behind", (each) => seconds(each.lag_s), "lag_s"),
  number("Env steps", (each) => count(each.lag_env_steps), "lag_env_steps"),
  number("In", (each) => rate(each.produced_per_s), "produced_per_s"),
  number("Out", (each) => rate(each.consumed_per_s), "consumed_per_s"),
  number("Catch up", (each) => seconds(each.catch_up_s), "catch_up_s"),
  number("Log used", (each) => share(each.retention_used), "retention_used"),
];
const STATE = {
  title: "State", isPill: true, text: (each) => each.verdict?.state ?? "",
  level: (each) => level(each.verdict), field: "state",
};
const REASON = {
  title: "Why", kind: "long", field: "reason",
  text: (each) => each.problem || each.verdict?.reason || "",
};
const PARTITIONS = [
  { title: "Partition", isHead: true, text: (each) => `${each.topic}[${each.partition}]` },
  STATE, ...FIGURES.slice(0, 2),
  number("Current", (each) => count(each.current), "current"),
  number("Committed", (each) => count(each.committed), "committed"),
  number("End", (each) => count(each.end), "end"),
  number("Held", (each) => count(each.held), "held"),
  number("Unsaved", (each) => count(each.unsaved), "unsaved"),
  number("Open", (each) => count(each.open_records), "open_records"),
  ...FIGURES.slice(3), { title: "Owner", text: (each) => each.owner, kind: "wide" }, REASON,
];

export class Groups {
  constructor() {
    this._open = new Set();
    this._isAll = false;
    this._table = new Table(at("groups"), [
      { title: "Group", isHead: true, fill: (cell, group) => this._name(cell, group) },
      STATE, ...FIGURES,
      number("Members", (each) => count(each.members), "members"), REASON,
    ], {
      key: ({ group }) => group, caption: "Consumer groups",
      nothing: "No group matches.", more: partitions,
    });
    const again = () => this._snapshot && this.show(this._snapshot);
    at("groups-filter").addEventListener("input", again);
    at("groups-trouble").addEventListener("change", again);
    at("groups-more").addEventListener("click", () => {
      this._isAll = !this._isAll;
      again();
    });
    this._again = again;
  }

  /** Show what a snapshot has. */
  show(snapshot) {
    this._snapshot = snapshot;
    const text = at("groups-filter").value.trim().toLowerCase();
    const isTrouble = at("groups-trouble").checked;
    const wanted = snapshot.lag.groups
      .filter(({ group }) => group.toLowerCase().includes(text))
      .filter(({ verdict }) => !isTrouble || ["bad", "warn"].includes(level(verdict)))
      .sort(compareBadness);
    const shown = this._isAll ? wanted : wanted.slice(0, MOST);
    setText(at("groups-count"), snapshot.lag.groups.length || "");
    showLeftOut(snapshot.lag.left_out);
    show(at("groups-more"), wanted.length > MOST);
    setText(at("groups-more"), this._isAll ? "Show fewer" : `Show all ${wanted.length}`);
    this._table.show(shown.map((group) => withSums(group, this._open.has(group.group))));
  }

  /** Open a group, and go there. */
  open(name) {
    at("groups-filter").value = name;
    at("groups-trouble").checked = false;
    this._open.add(name);
    this._again();
    const button = at("groups").querySelector(`[data-group="${CSS.escape(name)}"]`);
    button?.focus();
    button?.scrollIntoView({ block: "center" });
  }

  _name(cell, group) {
    let button = cell.firstElementChild;
    if (!button) {
      button = cell.appendChild(el("button", { type: "button", class: "opener" }));
      button.dataset.group = group.group;
      button.addEventListener("click", () => {
        if (!this._open.delete(group.group)) this._open.add(group.group);
        this._again();
      });
    }
    setText(button, group.group);
    setAttribute(button, "aria-expanded", group.isOpen);
  }
}

function showLeftOut({ groups, partitions: some }) {
  const text = `Too many to show: ${many(groups, "group")} and ${many(some, "partition")}, `
    + "those that do best, are left out.";
  show(at("groups-left-out"), groups + some > 0);
  setText(at("groups-left-out"), groups + some > 0 ? text : "");
}

function partitions(cell, group) {
  if (!cell.table) {
    const box = cell.appendChild(el("div", { class: "scroll" }));
    cell.table = new Table(box, PARTITIONS, {
      key: (each) => `${each.topic} ${each.partition}`,
      caption: `Partitions of ${group.group}`, nothing: "It reads no partition.",
    });
  }
  cell.table.show([...group.partitions].sort(compareBadness));
}

function withSums(group, isOpen) {
  const { partitions: all } = group;
  return {
    ...group, isOpen,
    produced_per_s: sum(all, "produced_per_s"), consumed_per_s: sum(all, "consumed_per_s"),
    catch_up_s: largest(all, "catch_up_s"), retention_used: largest(all, "retention_used"),
  };
}
