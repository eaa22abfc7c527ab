// Which experiment is shown, and with which ones it is compared: kept in the address.

/** Curves in one chart; more cannot be told apart. */
export const MOST = 8;

export class Selection {
  constructor(changed) {
    this._changed = changed;
    this.range = "3600";
    this.axis = "time";
    this._read();
    window.addEventListener("hashchange", () => {
      this._read();
      this._changed();
    });
  }

  /** Experiments whose curves are drawn, the shown one first. */
  get drawn() {
    return [this.focus, ...this.compared.filter((each) => each !== this.focus)].filter(Boolean);
  }

  /** Show another experiment. */
  show(name) {
    this.focus = name;
    this._write();
  }

  /** Compare with an experiment, or no longer. */
  compare(name, isWanted) {
    const others = this.compared.filter((each) => each !== name);
    this.compared = isWanted ? [...others, name].slice(-(MOST - 1)) : others;
    this._write();
  }

  /** Set `range` or `axis`. */
  set(name, value) {
    this[name] = value;
    this._write();
  }

  _read() {
    const values = new URLSearchParams(location.hash.slice(1));
    this.focus = values.get("experiment");
    this.compared = (values.get("with") ?? "").split(",").filter(Boolean).slice(0, MOST - 1);
    this.range = values.get("range") ?? this.range;
    this.axis = values.get("over") ?? this.axis;
  }

  _write() {
    const values = new URLSearchParams();
    if (this.focus) values.set("experiment", this.focus);
    if (this.compared.length) values.set("with", this.compared.join(","));
    values.set("range", this.range);
    values.set("over", this.axis);
    history.replaceState(null, "", `#${values}`);
    this._changed();
  }
}
