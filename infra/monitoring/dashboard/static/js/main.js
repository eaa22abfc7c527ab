// Snapshots -> the page.

import { AXES, Curves, RANGES } from "./curves.js";
import { Comparison, Processes, showFacts } from "./details.js";
import { radios, setAttribute, setText, show } from "./dom.js";
import { Experiments } from "./experiments.js";
import { seconds } from "./format.js";
import { soon } from "./frames.js";
import { Groups } from "./groups.js";
import { Histories } from "./history.js";
import { overall, problemOf } from "./model.js";
import { Pipeline } from "./pipeline.js";
import { Selection } from "./selection.js";
import { Stream } from "./stream.js";
import { setUpTheme } from "./theme.js";
import { Alerts, Events, Letters } from "./told.js";

const at = (id) => document.getElementById(id);
const ICONS = { bad: "/static/favicon-bad.svg" };
const ICON = "/static/favicon.svg";

let snapshot = null;
let told = "";
const selection = new Selection(() => draw());
const groups = new Groups();
const pipeline = new Pipeline(at("pipeline"), (group) => groups.open(group));
const experiments = new Experiments(selection);
const curves = new Curves(at("curves"), at("unzoom"));
const histories = new Histories(() => drawCurves());
const alerts = new Alerts((name) => selection.show(name));
const [comparison, processes] = [new Comparison(), new Processes()];
const [letters, events] = [new Letters(), new Events()];

radios(at("ranges"), RANGES, selection.range, (range) => selection.set("range", range));
radios(at("axes"), AXES, selection.axis, (axis) => selection.set("axis", axis));
setUpTheme(at("theme"), () => curves.recolour());
document.addEventListener("visibilitychange", () => draw());
new Stream(take, tell).start();

function take(taken) {
  snapshot = taken;
  histories.add(snapshot);
  draw();
}

function draw() {
  if (!snapshot || document.hidden) return;
  const view = choose();
  soon("experiments", () => experiments.show(snapshot));
  soon("overall", showOverall);
  show(at("chosen"), Boolean(view));
  if (view) {
    histories.want(selection.drawn, selection.range);
    soon("facts", () => showFacts(snapshot, view));
    soon("pipeline", () => pipeline.show(snapshot, view));
    soon("details", () => {
      comparison.show(snapshot, selection.drawn);
      processes.show(snapshot, view);
    });
    soon("asked", () => {
      letters.show(view);
      events.show(view);
    });
    drawCurves();
  }
  soon("groups", () => groups.show(snapshot));
}

function drawCurves() {
  if (!snapshot) return;
  show(at("curves-problem"), histories.problem !== "");
  setText(at("curves-problem"), histories.problem);
  curves.draw(selection.drawn, histories, selection.axis);
}

// The one that was chosen; else one that runs; else the first.
function choose() {
  const all = snapshot.experiments;
  const found = all.find((each) => each.experiment === selection.focus);
  if (found) return found;
  const first = all.find((each) => each.state === "running") ?? all[0];
  selection.focus = first?.experiment ?? null;
  return first;
}

function showOverall() {
  const [text, level] = overall(snapshot);
  setText(at("overall"), text);
  setAttribute(at("overall"), "data-level", level);
  setAttribute(at("icon"), "href", ICONS[level] ?? ICON);
  document.title = level === "ok" || !text ? "rollstream" : `${text} - rollstream`;
  alerts.show(snapshot);
}

function tell({ state, ageS }) {
  const problem = snapshot ? problemOf(snapshot) : "";
  const age = ageS === null ? "" : seconds(Math.round(ageS));
  const said = {
    connecting: "connecting", live: "live", late: `nothing new for ${age}`, lost: "connection lost",
  };
  setText(at("connection"), said[state]);
  setAttribute(at("connection"), "data-state", state);
  const isOld = state === "late" || state === "lost" || problem !== "";
  document.documentElement.classList.toggle("old", isOld && snapshot !== null);
  const why = {
    lost: `The connection to the server is lost; it is tried again.${age && ` What is shown is ${age} old.`}`,
    late: `The server has nothing new; what is shown is ${age} old.${problem && ` ${problem}`}`,
  };
  const banner = why[state] ?? problem;
  show(at("banner"), Boolean(banner));
  setText(at("banner"), banner);
  // Read out once, and not again as it grows older.
  if (state !== told) setText(at("announcements"), why[state] ?? "");
  told = state;
}
