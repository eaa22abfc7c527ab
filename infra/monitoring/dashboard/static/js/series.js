// Points of curves: gaps, fewer points of the same shape, other x-axes. Pure.
//
// A curve is `{x: [...], y: [...]}` with x ascending; a null in y breaks the line.

const LEAST_GAP_S = 30;

/**
 * Return a curve without the nulls that only mean that something else was told then. A
 * pause that is much longer than usual breaks the line; `isSparse`: none does.
 */
export function compact(times, values, isSparse = false) {
  const [x, y] = [[], []];
  for (let n = 0; n < times.length; n++) {
    const value = values[n];
    if (value !== null && value !== undefined) {
      x.push(times[n]);
      y.push(value);
    }
  }
  return isSparse ? { x, y } : broken(x, y);
}

function broken(x, y) {
  const steps = x.slice(1).map((at, n) => at - x[n]).sort((a, b) => a - b);
  const usual = steps[steps.length >> 1] ?? 0;
  const longest = Math.max(LEAST_GAP_S, usual * 5);
  const found = { x: [], y: [] };
  for (let n = 0; n < x.length; n++) {
    if (n && x[n] - x[n - 1] > longest) {
      found.x.push((x[n] + x[n - 1]) / 2);
      found.y.push(null);
    }
    found.x.push(x[n]);
    found.y.push(y[n]);
  }
  return found;
}

/** Return the curve between two x, with the neighbours just outside. */
export function between({ x, y }, least, most) {
  const from = Math.max(0, firstAtLeast(x, least) - 1);
  const to = Math.min(x.length, firstAtLeast(x, most) + 1);
  return { x: x.slice(from, to), y: y.slice(from, to) };
}

function firstAtLeast(x, value) {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Return a curve that looks the same on `buckets` columns of pixels: of each column the
 * first, the least, the greatest and the last point, and its gaps.
 */
export function thin({ x, y }, buckets) {
  if (x.length <= 4 * buckets) return { x, y };
  const found = { x: [], y: [] };
  const width = (x[x.length - 1] - x[0]) / buckets || 1;
  let from = 0;
  while (from < x.length) {
    const end = x[0] + (Math.floor((x[from] - x[0]) / width) + 1) * width;
    let to = from + 1;
    while (to < x.length && x[to] < end) to++;
    for (const n of chosen(y, from, to)) {
      found.x.push(x[n]);
      found.y.push(y[n]);
    }
    from = to;
  }
  return found;
}

function chosen(y, from, to) {
  let [least, most, gap] = [from, from, -1];
  for (let n = from; n < to; n++) {
    if (y[n] === null) gap = n;
    else {
      if (y[least] === null || y[n] < y[least]) least = n;
      if (y[most] === null || y[n] > y[most]) most = n;
    }
  }
  const found = new Set([from, least, most, to - 1]);
  if (gap >= 0) found.add(gap);
  return [...found].sort((a, b) => a - b);
}

/** Return when a run began, by its id: seconds since the epoch, or null. */
export function startOf(runId) {
  const found = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)-/.exec(runId ?? "");
  if (!found) return null;
  const [year, month, ...rest] = found.slice(1).map(Number);
  return Date.UTC(year, month - 1, ...rest) / 1000;
}

/**
 * Return the x of each point of time on another axis: `time`, `age` (seconds since
 * `startS`, or else since the first) or `steps` (of environments, as far as they were).
 */
export function onAxis(axis, times, steps, startS = null) {
  if (axis === "age") return times.map((at) => at - (startS ?? times[0]));
  if (axis !== "steps") return times;
  let most = 0;
  // Steps never go back, though a learner that goes on from a checkpoint does.
  return times.map((_, n) => (most = Math.max(most, steps?.[n] ?? 0)));
}

/** Put curves on one x, as uPlot wants them; undefined: there is no point, no gap. */
export function align(curves) {
  const all = new Set();
  for (const { x } of curves) for (const at of x) all.add(at);
  const x = Float64Array.from(all).sort();
  const ys = curves.map((curve) => {
    const y = new Array(x.length).fill(undefined);
    let n = 0;
    for (let m = 0; m < curve.x.length; m++) {
      while (x[n] < curve.x[m]) n++;
      y[n] = curve.y[m];
    }
    return widened(y);
  });
  return [x, ...ys];
}

// uPlot takes a gap to reach to the points beside it, also where another curve has those.
function widened(y) {
  const gaps = y.flatMap((value, n) => (value === null ? [n] : []));
  for (const gap of gaps) {
    for (let n = gap - 1; n >= 0 && y[n] === undefined; n--) y[n] = null;
    for (let n = gap + 1; n < y.length && y[n] === undefined; n++) y[n] = null;
  }
  return y;
}
