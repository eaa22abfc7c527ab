// One chart: uPlot, a legend that says what the cursor points at, and the keyboard.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { el, keyed, setText } from "./dom.js";
import { brief, clock, count, moment, seconds } from "./format.js";
import { align, between, thin } from "./series.js";
import { colour } from "./theme.js";

const HEIGHT = 168;
/** More of them, and they hide the line. */
const MOST_DOTS = 60;
const together = uPlot.sync("curves");

export class Chart {
  /** `zoomed` is called with `[least, most]` of x, or null for all. */
  constructor(parent, of, zoomed) {
    this.of = of;
    this._zoomed = zoomed;
    this._key = "";
    this._lines = [];
    this._legend = el("ul", { class: "legend" });
    this._at = el("span", { class: "at" });
    this._plot = el("div", {
      class: "plot", tabindex: "0", role: "img", "aria-label": of.title,
    });
    this._nothing = el("p", { class: "nothing", text: "no data yet" });
    const title = el("h3", { text: of.title });
    const head = el("header", {}, title, this._at);
    this.node = el("article", { class: "card curve" }, head, this._legend, this._plot);
    this.node.dataset.chart = of.key;
    parent.append(this.node);
    this._plot.addEventListener("keydown", (event) => this._press(event));
    new ResizeObserver(() => this._fit()).observe(this._plot);
  }

  /** Draw lines `{curve, label, colour, isDashed, hasDots}`, as far as `range` of x goes. */
  draw(lines, axis, range) {
    this._lines = lines;
    this._axis = this.node.dataset.axis = axis;
    const isEmpty = lines.every(({ curve }) => curve.y.length === 0);
    this._nothing.remove();
    if (isEmpty) {
      this.forget();
      this._plot.append(this._nothing);
      this._name();
      return;
    }
    const [least, most] = range;
    const width = Math.max(200, this._plot.clientWidth);
    const shown = lines.map(({ curve }) => thin(between(curve, least, most), width));
    this._shown = shown;
    const data = align(shown);
    const key = JSON.stringify([axis, lines.map((each) => [each.label, each.colour])]);
    if (this._key !== key) this._make(key, data);
    this._u.batch(() => {
      this._u.setData(data, false);
      this._u.setScale("x", wide(range, axis));
    });
    this._name();
  }

  /** Drop the chart; it is made anew, with the colours of then. */
  forget() {
    this._u?.destroy();
    this._u = null;
    this._key = "";
  }

  _make(key, data) {
    this.forget();
    const { format, isFree } = this.of;
    const muted = colour("--muted");
    const axis = {
      stroke: muted, font: "11px Inter, system-ui, sans-serif",
      grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false },
    };
    const hasDots = (n) => this._lines[n].hasDots && this._shown[n].x.length <= MOST_DOTS;
    const options = {
      width: Math.max(200, this._plot.clientWidth), height: HEIGHT, padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: together.key, setSeries: false }, drag: { x: true, y: false },
        y: false, points: { size: 6 }, bind: { dblclick: () => () => this._zoomed(null) },
      },
      scales: {
        x: { time: this._axis === "time" },
        y: { range: (_, least, most) => reach(least, most, isFree) },
      },
      axes: [
        { ...axis, ...X_AXES[this._axis], space: 58, size: 26 },
        { ...axis, space: 30, size: 44, values: briefs },
      ],
      series: [{}, ...this._lines.map((line) => stroke(line, hasDots))],
      hooks: {
        setCursor: [() => this._say()],
        setSelect: [(u) => this._select(u)],
      },
    };
    this._u = new uPlot(options, data, this._plot);
    this._key = key;
    this._format = format;
  }

  _fit() {
    const width = this._plot.clientWidth;
    if (this._u && width && width !== this._u.width) {
      this._u.setSize({ width, height: HEIGHT });
    }
  }

  _select(u) {
    const { left, width } = u.select;
    if (width < 4) return;
    const range = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this._zoomed(range);
  }

  // A legend for each line that has points; `_say` fills in the figures.
  _name() {
    keyed(this._legend, this._lines.filter((each) => each.curve.y.length), {
      key: (each) => each.label,
      make: () => el("li", {}, el("i"), el("span"), el("b")),
      update: (node, each) => {
        node.dataset.colour = each.colour;
        node.dataset.dashed = each.isDashed;
        setText(node.children[1], each.label);
        each.figure = node.children[2];
      },
    });
    this._say();
    this._describe();
  }

  // What the cursor points at, else what is newest; at each move of the mouse.
  _say() {
    const at = this._u?.cursor.idx ?? null;
    setText(this._at, at === null ? "" : this._where(this._u.data[0][at]));
    this._lines.forEach(({ curve, figure }, n) => {
      const value = at === null ? newest(curve) : near(this._u.data[n + 1], at);
      if (figure) setText(figure, this.of.format(value));
    });
  }

  // The same for who does not see it.
  _describe() {
    const figures = this._lines.filter((each) => each.figure);
    const said = figures.map(({ label, figure }) => `${label} ${figure.textContent}`.trim());
    const parts = [this.of.title, this._at.textContent, ...said];
    this._plot.setAttribute("aria-label", parts.filter(Boolean).join(", "));
  }

  _where(x) {
    if (this._axis === "time") return clock(x);
    return this._axis === "age" ? `${seconds(x)} after its start` : `${count(x)} env steps`;
  }

  _press(event) {
    const u = this._u;
    if (!u) return;
    const last = u.data[0].length - 1;
    const at = u.cursor.idx ?? last;
    const step = event.shiftKey ? 20 : 1;
    const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: last }[event.key];
    if (event.key === "Escape") u.setCursor({ left: -10, top: -10 });
    else if (to === undefined) return;
    else {
      const x = u.data[0][Math.min(last, Math.max(0, to))];
      u.setCursor({ left: u.valToPos(x, "x"), top: u.bbox.height / 4 });
    }
    this._describe();
    event.preventDefault();
  }
}

const briefs = (_, all) => all.map(brief);
const X_AXES = {
  time: { values: (_, all, axis, space, step) => all.map((at) => moment(at, step)) },
  age: {
    values: (_, all) => all.map(seconds),
    incrs: [
      1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200,
      86_400, 172_800, 432_000,
    ],
  },
  steps: { values: briefs },
};

function stroke({ colour: number, isDashed, label }, hasDots) {
  const drawn = colour(`--curve-${number}`);
  return {
    label, stroke: drawn, width: 1.3, dash: isDashed ? [5, 4] : undefined,
    points: { show: (_, n) => hasDots(n - 1), size: 5, fill: drawn, stroke: drawn },
  };
}

// A single point, or a line that is flat, has room as well.
function wide([least, most], axis) {
  const room = least === most ? (axis === "time" ? 30 : 1) : 0;
  return { min: least - room, max: most + room };
}

function reach(least, most, isFree) {
  if (least === null || least === undefined) return [0, 1];
  const low = isFree || least < 0 ? least : 0;
  const room = (most - low || Math.abs(most) || 1) * 0.06;
  return [isFree || least < 0 ? low - room : 0, most + room];
}

function newest({ y }) {
  for (let n = y.length - 1; n >= 0; n--) if (y[n] !== null) return y[n];
  return null;
}

// Series have points at different times: the last one up to there is meant.
function near(values, at) {
  for (let n = at; n >= 0; n--) if (values[n] !== undefined) return values[n];
  return null;
}
