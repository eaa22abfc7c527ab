// Figures -> short texts. What is not known is a dash.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const two = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

const timeOf = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const dateOf = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

// A hyphen is no minus.
for (const format of [whole, one, two, three]) {
  const plain = format.format;
  Object.defineProperty(format, "format", { value: (n) => plain(n).replace("-", "−") });
}

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

/** Records, steps: all digits, so that they can be compared with what others say. */
export function count(value) {
  return isKnown(value) ? whole.format(value) : UNKNOWN;
}

/** Something a second: `12/s`, `12 steps/s`. */
export function rate(value, noun = "") {
  if (!isKnown(value)) return UNKNOWN;
  return `${(value < 10 ? one : whole).format(value)}${noun && ` ${noun}`}/s`;
}

/** A figure of any size, to three or four digits. */
export function figure(value) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size !== 0 && size < 0.001) return value.toExponential(1).replace("e-", "e−");
  if (size < 10) return three.format(value);
  return (size < 1000 ? one : whole).format(value);
}

/** The same with few characters, for axes. */
export function brief(value) {
  if (!isKnown(value)) return "";
  const size = Math.abs(value);
  if (size >= 1e9) return `${two.format(value / 1e9)}G`;
  if (size >= 1e6) return `${two.format(value / 1e6)}M`;
  if (size >= 1e4) return `${one.format(value / 1e3)}k`;
  if (size !== 0 && size < 0.01) return value.toExponential(0);
  return (size < 10 ? two : one).format(value);
}

/** A time span in seconds. */
export function seconds(value) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size < 10) return `${(size < 1 ? two : one).format(value)} s`;
  if (size < 120) return `${whole.format(value)} s`;
  if (size < 7200) return `${whole.format(value / 60)} min`;
  if (size < 172_800) return `${one.format(value / 3600)} h`;
  return `${whole.format(value / 86_400)} days`;
}

/** A share between 0 and 1. */
export function share(value) {
  if (!isKnown(value)) return UNKNOWN;
  return `${(value > 0 && value < 0.01 ? two : whole).format(value * 100)} %`;
}

/** `1 worker`, `2 workers`. */
export function many(number, noun, plural = `${noun}s`) {
  return `${whole.format(number)} ${number === 1 ? noun : plural}`;
}

/** A time of the day, with the date where it is not today's. */
export function clock(atS) {
  const at = new Date(atS * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? timeOf.format(at) : `${dateOf.format(at)} ${timeOf.format(at)}`;
}

/** A time on an axis whose marks are `step` seconds apart. */
export function moment(atS, step) {
  const at = new Date(atS * 1000);
  if (step >= 86_400) return dateOf.format(at);
  const time = timeOf.format(at);
  return step < 60 ? time : time.slice(0, 5);
}
