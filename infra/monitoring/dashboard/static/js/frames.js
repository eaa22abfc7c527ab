// Work that is spread over frames, so that no frame takes long.

const waiting = new Map();
let isAsked = false;

/** Do something soon; of the same key only the last, and one thing in each frame. */
export function soon(key, work) {
  // A key that waits keeps its place: nothing is put off for ever.
  waiting.set(key, work);
  if (!isAsked) {
    isAsked = true;
    requestAnimationFrame(turn);
  }
}

function turn() {
  const [key, work] = waiting.entries().next().value;
  waiting.delete(key);
  isAsked = waiting.size > 0;
  if (isAsked) requestAnimationFrame(turn);
  const began = performance.now();
  work();
  performance.measure(`draw:${key}`, { start: began, end: performance.now() });
}
