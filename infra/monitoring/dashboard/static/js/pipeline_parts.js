// A snapshot -> what each part of the picture says. Pure.

import { count, figure, many, rate, seconds, share } from "./format.js";
import {
  groupOf, largest, level, problemOf, processesOf, rateOf, silence, SILENT_S, sum,
} from "./model.js";

/**
 * Return by name `{title, pill, level, lines, flows, used, lag}`: whether anything comes
 * out of a part, and of topics which share of the log lies behind the reader.
 */
export function describe(snapshot, view) {
  const parts = {
    environments: environments(snapshot, view),
    trajectories: topic(snapshot, view, "trajectories", "processor"),
    processors: processors(snapshot, view),
    replay: topic(snapshot, view, "replay", "learner"),
    learner: learner(snapshot, view),
    policies: policies(view),
  };
  if (!problemOf(snapshot)) return parts;
  // Who is silent while the brokers are may be well, and what flowed may not flow now.
  const unsure = { pill: "", level: "", reason: "", flows: false };
  return Object.fromEntries(
    Object.entries(parts).map(([name, part]) => [name, { ...part, ...unsure }]),
  );
}

function environments(snapshot, view) {
  const workers = processesOf(view, "worker");
  const stepsPerS = rateOf(view, "worker", "env_steps") ?? view.env_steps_per_s;
  return {
    title: "Environments",
    ...health(snapshot, view, workers),
    lines: [many(workers.length, "worker"), rate(stepsPerS, "steps"), heard(snapshot, workers)],
    flows: stepsPerS > 0,
  };
}

function processors(snapshot, view) {
  const processes = processesOf(view, "processor");
  const group = groupOf(snapshot, view.experiment, "processor");
  const partitions = group?.partitions ?? [];
  const consumed = sum(partitions, "consumed_per_s");
  const held = sum(partitions, "held");
  return {
    title: "Processors",
    ...health(snapshot, view, processes),
    lines: [
      many(processes.length, "process", "processes"),
      rate(consumed, "unrolls"),
      held ? `${count(held)} held back` : heard(snapshot, processes),
    ],
    flows: consumed > 0,
  };
}

function learner(snapshot, view) {
  const { wait_ratio: wait } = view.experience;
  return {
    title: "Learner",
    ...health(snapshot, view, processesOf(view, "learner")),
    lines: [
      rate(view.updates_per_s, "updates"),
      `loss ${figure(view.loss)}`,
      wait === null ? heard(snapshot, processesOf(view, "learner")) : `waits ${share(wait)}`,
    ],
    flows: view.updates_per_s > 0,
  };
}

function policies(view) {
  const lag = view.experience.policy_lag_versions.mean;
  const adoption = Object.values(view.experience.adoption_s);
  return {
    title: "policies",
    isTopic: true,
    pill: "",
    level: "",
    lines: [
      view.policy_version < 0 ? "no version yet" : `version ${count(view.policy_version)}`,
      lag === undefined ? "" : `lag ${figure(lag)} versions`,
      adoption.length ? `adopted in ${seconds(Math.max(...adoption))}` : "",
    ],
    flows: view.policy_version >= 0 && view.updates_per_s > 0,
  };
}

function topic(snapshot, view, name, role) {
  const group = groupOf(snapshot, view.experiment, role);
  const of = `rollstream.${view.experiment}.${name}`;
  const partitions = (group?.partitions ?? []).filter((each) => each.topic === of);
  const late = group?.lag_s ?? null;
  const produced = sum(partitions, "produced_per_s");
  const consumed = sum(partitions, "consumed_per_s");
  const used = largest(partitions, "retention_used");
  return {
    title: name,
    isTopic: true,
    group: group?.group ?? "",
    pill: group?.verdict?.state ?? "",
    level: level(group?.verdict),
    reason: group?.verdict?.reason ?? "",
    lines: [
      `lag ${count(group?.lag)}`,
      late === null ? "" : `${seconds(late)} behind`,
      `${rate(produced)} in, ${rate(consumed)} out`,
    ],
    flows: consumed > 0,
    used,
    hint: used === null ? "" : `${share(used)} of the log lies behind its reader`,
  };
}

function heard(snapshot, processes) {
  if (!processes.length) return "";
  return `heard ${seconds(Math.max(...processes.map((p) => silence(snapshot, p))))} ago`;
}

function health(snapshot, view, processes) {
  if (view.state !== "running") return { pill: "", level: "" };
  if (!processes.length) return { pill: "none", level: "warn" };
  const silent = processes.filter((each) => silence(snapshot, each) > SILENT_S).length;
  return silent ? { pill: `${silent} silent`, level: "bad" } : { pill: "up", level: "ok" };
}
