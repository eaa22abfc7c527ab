// A snapshot -> what the page says of it. Pure: no element is touched here.

import { count, figure, many, rate, seconds, share, UNKNOWN } from "./format.js";

/** From worst to best, and how bad each is: 0 fine, 1 worth a look, 2 bad. */
export const ORDER = [
  "LOST", "STOPPED", "STALLED", "REWIND", "WARN", "NO_COMMIT", "OK", "EMPTY",
];
const SEVERITY = { OK: 0, EMPTY: 0, NO_COMMIT: 1, WARN: 1 };
const LEVELS = ["ok", "warn", "bad"];
const BAD_STATES = ["degraded", "failed", "refused"];
const MOST_WAIT = 0.5;
const OF_AGE = ["policy-lag", "policy-age"];
/** Of a role that publishes every second. */
export const SILENT_S = 10;

/** Return `ok`, `warn` or `bad` for a verdict; "" where there is none. */
export function level(verdict) {
  return verdict ? LEVELS[SEVERITY[verdict.state] ?? 2] : "";
}

/** Return the same for what was published of an experiment. */
export function stateLevel(state) {
  if (BAD_STATES.includes(state)) return "bad";
  return state === "running" || state === "finished" ? "ok" : "";
}

/** Return a role's consumer group; undefined where none is known. */
export function groupOf(snapshot, experiment, role) {
  const name = `rollstream.${experiment}.${role}`;
  return snapshot.lag.groups.find((each) => each.group === name);
}

/** Return all groups of an experiment. */
export function groupsOf(snapshot, experiment) {
  const prefix = `rollstream.${experiment}.`;
  return snapshot.lag.groups.filter((each) => each.group.startsWith(prefix));
}

/** Add up a field of partitions; null where it is known of none. */
export function sum(partitions, field) {
  const known = partitions.map((each) => each[field]).filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

/** Return the largest of a field of partitions; null where it is known of none. */
export function largest(partitions, field) {
  const known = partitions.map((each) => each[field]).filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}

/** Compare two things with a verdict and a lag: the worst first, and without flutter. */
export function compareBadness(a, b) {
  const rank = (each) => (each.verdict ? ORDER.indexOf(each.verdict.state) : ORDER.length);
  const size = (each) => Math.floor(Math.log2((each.lag ?? 0) + 1));
  return rank(a) - rank(b) || size(b) - size(a);
}

/** Return the processes of a role. */
export function processesOf(view, role) {
  return view.processes.filter((each) => each.role === role);
}

/** Add up a counter's rate over the processes of a role; null where none is known. */
export function rateOf(view, role, counter) {
  return sum(
    processesOf(view, role).map((each) => ({ rate: each.rates[counter] ?? null })),
    "rate",
  );
}

/** Return for how long a process was not heard of, at the time of the snapshot. */
export function silence(snapshot, process) {
  return Math.max(0, snapshot.at_s - process.heard_at_s);
}

/** Return why something of a snapshot is old or missing; "" when nothing is. */
export function problemOf(snapshot) {
  return snapshot.problem || snapshot.lag.problem || "";
}

/** Return the four answers of the top row: `{title, level, answer, evidence}`. */
export function glance(snapshot, view) {
  return [keepingUp(snapshot, view), fresh(view), lossless(view), learning(view)];
}

function keepingUp(snapshot, view) {
  const groups = groupsOf(snapshot, view.experiment).sort(compareBadness);
  const worst = groups[0];
  const found = { title: "Keeping up", level: level(worst?.verdict), evidence: "" };
  if (problemOf(snapshot)) {
    return { ...found, level: "", answer: UNKNOWN, evidence: "what is shown is from before" };
  }
  if (!worst?.verdict) return { ...found, answer: UNKNOWN, evidence: "no group is known" };
  const role = worst.group.split(".").at(-1);
  if (found.level !== "ok") {
    const { state, reason } = worst.verdict;
    return { ...found, answer: `${role} ${words(state)}`, evidence: reason };
  }
  const lags = groups.map((each) => `${each.group.split(".").at(-1)} ${count(each.lag)}`);
  const late = largest(groups, "lag_s");
  const behind = late === null ? "" : `, ${seconds(late)} behind`;
  return { ...found, answer: "Yes", evidence: `lag: ${lags.join(", ")}${behind}` };
}

function fresh(view) {
  const { data_age_s: age, policy_lag_versions: lag, wait_ratio: wait } = view.experience;
  const title = "Fresh experience";
  const alert = view.alerts.map(ruleOf).find(({ rule }) => OF_AGE.includes(rule));
  if (alert) return { title, level: "bad", answer: "Too old", evidence: alert.why };
  if (age.p50 === undefined) {
    return { title, level: "", answer: UNKNOWN, evidence: "nothing was learnt from lately" };
  }
  const parts = [];
  if (lag.mean !== undefined) parts.push(`${figure(lag.mean)} versions behind`);
  if (wait !== null) parts.push(`learner waits ${share(wait)}`);
  // Who mostly waits learns little, however fresh it is.
  const found = wait > MOST_WAIT ? "warn" : "ok";
  return { title, level: found, answer: `${seconds(age.p50)} old`, evidence: parts.join(", ") };
}

function lossless(view) {
  const { lost_steps: lost, duplicate_steps: twice } = view.experience;
  const letters = view.dead_letters;
  const title = "Nothing lost";
  const evidence =
    `lost ${count(lost)}, duplicates ${count(twice)}, dead letters ${count(letters)}`;
  if (lost > 0) return { title, level: "bad", answer: `${count(lost)} lost`, evidence };
  if (letters > 0) {
    return { title, level: "warn", answer: many(letters, "dead letter"), evidence };
  }
  return { title, level: "ok", answer: "Yes", evidence };
}

function learning(view) {
  const how = view.is_greedy ? "greedy" : "while exploring";
  return {
    title: "Mean return",
    level: "",
    answer: figure(view.mean_return),
    evidence: view.mean_return === null
      ? "no episode has ended"
      : `${how}, after ${count(view.env_steps)} steps`,
  };
}

/** Return the figures below the picture: `[label, text, field]`. */
export function figures(view) {
  const { experience: e } = view;
  return [
    ["env steps", count(view.env_steps), "env_steps"],
    ["env steps a second", rate(view.env_steps_per_s), "env_steps_per_s"],
    ["episodes", count(view.episodes), "episodes"],
    ["updates", count(view.updates), "updates"],
    ["updates a second", rate(view.updates_per_s), "updates_per_s"],
    ["loss", figure(view.loss), "loss"],
    ["policy version", view.policy_version < 0 ? UNKNOWN : count(view.policy_version), "policy_version"],
    ["samples per insert", figure(e.samples_per_insert), "samples_per_insert"],
    ["learner waits", share(e.wait_ratio), "wait_ratio"],
    ["age of data", spread(seconds, e.data_age_s), "data_age_s"],
    ["policy lag, versions", spread(figure, e.policy_lag_versions), "policy_lag_versions"],
    ["policy lag, time", spread(seconds, e.policy_lag_s), "policy_lag_s"],
  ];
}

// A mean or a median first, then by name what is further out.
function spread(format, { mean, p50, ...more }) {
  const parts = ["p95", "max"].filter((name) => more[name] !== undefined);
  const rest = parts.map((name) => `${name} ${format(more[name])}`);
  return [format(mean ?? p50), ...rest].join(" · ");
}

/** Return one sentence on everything, and how bad it is. */
export function overall(snapshot) {
  // Figures from before show neither that all is well nor who is to blame.
  if (problemOf(snapshot)) return ["Not known now", "warn"];
  const levels = snapshot.lag.groups.map((each) => level(each.verdict));
  const bad = levels.filter((each) => each === "bad").length;
  const warn = levels.filter((each) => each === "warn").length;
  const alerts = snapshot.experiments.reduce((n, each) => n + each.alerts.length, 0);
  const degraded = snapshot.experiments.filter((each) => stateLevel(each.state) === "bad").length;
  const parts = [];
  if (alerts) parts.push(many(alerts, "alert"));
  if (degraded) parts.push(`${many(degraded, "experiment")} in trouble`);
  if (bad) parts.push(`${many(bad, "group")} in trouble`);
  if (warn) parts.push(`${many(warn, "group")} worth a look`);
  if (parts.length) return [parts.join(", "), bad + degraded + alerts ? "bad" : "warn"];
  return levels.length ? ["Everyone keeps up", "ok"] : ["", ""];
}

/** Split what an alert tells into its rule and why it is broken. */
export function ruleOf({ kind, reason }) {
  const [, rule, why] = /^([a-z-]+): (.*)$/s.exec(reason) ?? [];
  return kind === "alert-on" && rule ? { rule, why } : { rule: kind, why: reason };
}

/** A state as a word in a sentence. */
export function words(state) {
  return { NO_COMMIT: "has no commit", LOST: "lost records", REWIND: "was rewound" }[state]
    ?? `is ${{ WARN: "falling behind" }[state] ?? state.toLowerCase()}`;
}
