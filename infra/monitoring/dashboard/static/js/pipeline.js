// The pipeline as a picture: where experience is, and how it moves.

import { setAttribute, setText, svg } from "./dom.js";
import { layOut, PARTS } from "./pipeline_layout.js";
import { describe } from "./pipeline_parts.js";

const [PADDING, LINE, BAR, END] = [12, 18, 4, 9];

export class Pipeline {
  /** `open` is called with the name of a group whose topic was chosen. */
  constructor(parent, open) {
    this._parent = parent;
    this._open = open;
    this._parts = null;
    this._width = 0;
    this._nodes = {};
    this._flows = [];
    new ResizeObserver(() => this._fit()).observe(parent);
  }

  /** Show an experiment. */
  show(snapshot, view) {
    this._parts = describe(snapshot, view);
    if (!this._width) this._fit();
    // Its section was hidden until now, and has no width yet.
    if (!this._width) return;
    for (const name of PARTS) write(this._nodes[name], this._parts[name]);
    for (const { from, node } of this._flows) {
      setAttribute(node, "class", this._parts[from].flows ? "flow flows" : "flow");
    }
  }

  _fit() {
    const width = Math.floor(this._parent.clientWidth);
    if (!this._parts || !width || width === this._width) return;
    this._width = width;
    const layout = layOut(width);
    this._flows = layout.flows.map(({ from, path }) => ({
      from, node: svg("path", { d: path, class: "flow", "marker-end": "url(#arrow)" }),
    }));
    this._nodes = Object.fromEntries(
      PARTS.map((name) => [name, this._make(layout.boxes[name], this._parts[name])]),
    );
    const { height } = layout;
    const picture = svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
        "aria-label": "From environments over trajectories, processors and replay to " +
          "the learner, and back by policies" },
      arrow(),
      ...this._flows.map(({ node }) => node),
      ...PARTS.map((name) => this._nodes[name].node),
    );
    this._parent.replaceChildren(picture);
    for (const name of PARTS) write(this._nodes[name], this._parts[name]);
  }

  _make(box, part) {
    // A pipe's ends are round: what it says begins further in.
    const room = part.isTopic ? END + 5 : 0;
    const { y, height } = box;
    const [x, width] = [box.x + room, box.width - 2 * room];
    const shape = part.isTopic ? pipe(box) : svg("rect", { ...rounded(box), class: "shape" });
    const title = svg("text", { x: x + PADDING, y: y + 24, class: "part-title" });
    const pill = svg("text", { x: x + width - PADDING, y: y + 24, class: "part-pill" });
    const lines = part.lines.map((_, n) => svg("text", {
      x: x + PADDING, y: y + 48 + n * LINE, class: n ? "part-line" : "part-line first",
    }));
    const hint = svg("title");
    const parts = [hint, shape, title, pill, ...lines];
    let used = null;
    if (part.used !== undefined) {
      const bar = { x: x + PADDING, y: y + height - 10, height: BAR, rx: BAR / 2 };
      used = svg("rect", { ...bar, width: 0, class: "used" });
      used.full = width - 2 * PADDING;
      parts.push(svg("rect", { ...bar, width: used.full, class: "track" }), used);
    }
    const node = part.group === undefined
      ? svg("g", { class: "part", role: "img" }, ...parts)
      : this._link(parts);
    return { node, hint, title, pill, lines, used };
  }

  _link(parts) {
    const node = svg("a", { class: "part", href: "#groups-title" }, ...parts);
    node.addEventListener("click", (event) => {
      event.preventDefault();
      if (node.dataset.group) this._open(node.dataset.group);
    });
    return node;
  }
}

function write({ node, hint, title, pill, lines, used }, part) {
  setText(title, part.title);
  setText(pill, part.pill);
  lines.forEach((line, n) => setText(line, part.lines[n]));
  setAttribute(node, "data-level", part.level);
  const more = [part.reason, part.hint].filter(Boolean).join("; ");
  setText(hint, more);
  const said = [part.title, part.pill, ...part.lines, more];
  setAttribute(node, "aria-label", said.filter(Boolean).join(", "));
  if (part.group !== undefined) node.dataset.group = part.group;
  if (used) {
    const share = Math.min(1, Math.max(0, part.used ?? 0));
    setAttribute(used, "width", (used.full * share).toFixed(1));
    setAttribute(used, "data-level", share > 0.8 ? "bad" : share > 0.5 ? "warn" : "");
  }
}

// A topic is a pipe: records go in on its left, and come out in their order.
function pipe({ x, y, width, height }) {
  const [left, right, ends] = [x + END, x + width - END, `${END} ${height / 2}`];
  const outline =
    `M${left} ${y}H${right}A${ends} 0 0 1 ${right} ${y + height}` +
    `H${left}A${ends} 0 0 1 ${left} ${y}Z`;
  return svg(
    "g", {},
    svg("path", { d: outline, class: "shape" }),
    svg("path", { d: `M${left} ${y}A${ends} 0 0 1 ${left} ${y + height}`, class: "shape rim" }),
  );
}

function rounded({ x, y, width, height }) {
  return { x, y, width, height, rx: 10 };
}

function arrow() {
  const marker = svg(
    "marker",
    { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7,
      orient: "auto-start-reverse", markerUnits: "userSpaceOnUse" },
    svg("path", { d: "M0 0.5L7 4L0 7.5z", class: "arrow" }),
  );
  return svg("defs", {}, marker);
}
