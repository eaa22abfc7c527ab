// Where the parts of the picture lie, for a width in CSS pixels. Pure.
//
// Wide: a row of five, and policies on the way back below it. Narrow: a column, with
// the way back on its left.

const ROW = ["environments", "trajectories", "processors", "replay", "learner"];
export const PARTS = [...ROW, "policies"];
const WIDE_FROM = 720;

/** Return `{width, height, boxes: {name: {x, y, width, height}}, flows: [{from, to, path}]}`. */
export function layOut(width) {
  return width >= WIDE_FROM ? wide(width) : narrow(width);
}

function wide(width) {
  const [gap, height, edge] = [Math.min(64, Math.max(26, width * 0.035)), 116, 1];
  const box = (width - 2 * edge - 4 * gap) / 5;
  const boxes = {};
  ROW.forEach((name, n) => {
    boxes[name] = { x: edge + n * (box + gap), y: 1, width: box, height };
  });
  const below = height + 34;
  boxes.policies = { ...boxes.processors, y: below, height: 96 };
  const middle = below + 48;
  const flows = ROW.slice(1).map((to, n) => {
    const from = boxes[ROW[n]];
    const y = from.y + height / 2;
    return flow(ROW[n], to, `M${from.x + box} ${y}H${boxes[to].x - 2}`);
  });
  const [env, learner] = [boxes.environments, boxes.learner];
  const [out, home] = [learner.x + box / 2, env.x + box / 2];
  const right = boxes.policies.x + box;
  flows.push(
    flow("learner", "policies",
      `M${out} ${height + 1}V${middle - 10}q0 10 -10 10H${right + 2}`),
    flow("policies", "environments",
      `M${boxes.policies.x} ${middle}H${home + 10}q-10 0 -10 -10V${height + 3}`),
  );
  return { width, height: below + 98, boxes, flows };
}

function narrow(width) {
  const [left, gap, height] = [22, 22, 104];
  const boxes = {};
  PARTS.forEach((name, n) => {
    boxes[name] = { x: left, y: 1 + n * (height + gap), width: width - left - 1, height };
  });
  const flows = PARTS.slice(1).map((to, n) => {
    const from = boxes[PARTS[n]];
    const x = from.x + from.width / 2;
    return flow(PARTS[n], to, `M${x} ${from.y + height}V${boxes[to].y - 2}`);
  });
  const [first, last] = [boxes.environments, boxes.policies];
  const [start, end] = [last.y + height / 2, first.y + height / 2];
  flows.push(
    flow("policies", "environments",
      `M${left} ${start}H14q-10 0 -10 -10V${end + 10}q0 -10 10 -10H${left - 2}`),
  );
  return { width, height: last.y + height + 1, boxes, flows };
}

function flow(from, to, path) {
  return { from, to, path };
}
