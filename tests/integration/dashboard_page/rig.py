"""The dashboard's page in a real browser, with snapshots that a test makes."""

import contextlib
import dataclasses
import random
import threading
import time

import numpy as np
from playwright.sync_api import expect, sync_playwright

from infra.monitoring.dashboard.access import LOCAL
from infra.monitoring.dashboard.app import create_app
from infra.monitoring.dashboard.curves import known, thin
from infra.monitoring.lag.model import (
    GroupLag,
    LagReport,
    PartitionLag,
    Place,
    Verdict,
)
from infra.monitoring.role_views import Told
from infra.monitoring.snapshot import (
    Experience,
    ExperimentView,
    ProcessView,
    Snapshot,
)
from tests.browsers import launch
from tests.unit.dashboard_server import FakeSource, serving

EXPERIMENT = "cartpole-dqn"
STALLED = Verdict("STALLED", 4, "position 88 has not moved for 11 s, 12 records wait")
ALERT = Told("alert-on", "processor", 0, f"stalled: {STALLED.reason}", 9_000, "alert")
# The machine may be busy with other tests.
TIMEOUT_MS = 60_000
HOSTILE = "<img src=x onerror=\"window.harmed='yes'\"><script>window.harmed=1</script>"
expect.set_options(timeout=TIMEOUT_MS)


@contextlib.contextmanager
def browser():
    """A browser; Playwright's loop lives as long as it."""
    with sync_playwright() as playwright, contextlib.closing(launch(playwright)) as own:
        yield own


@contextlib.contextmanager
def window(chromium, **options):
    """What one person has open, with cookies of its own; closed at the end."""
    with contextlib.closing(chromium.new_context(**options)) as found:
        found.set_default_timeout(TIMEOUT_MS)
        yield found


class Source(FakeSource):
    """Snapshots of a test, as `infra.monitoring.watch.Watch` has them."""

    def put(self, snapshot):
        self.show(snapshot)

    @contextlib.contextmanager
    def going_on(self):
        """Say the same again and again: what a slow page has is not old then."""
        is_over = threading.Event()

        def go_on():
            while not is_over.wait(0.5):
                at_s = self.snapshot.at_s + 0.001
                self.put(dataclasses.replace(self.snapshot, at_s=at_s))

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def change(self, **changes):
        """Change the only experiment, and let a moment pass."""
        (view,) = self.snapshot.experiments
        at_s = self.snapshot.at_s + 1
        views = (dataclasses.replace(view, **changes),)
        self.put(dataclasses.replace(self.snapshot, at_s=at_s, experiments=views))


class Past:
    """What was, by experiment; nothing unless a test says something."""

    def __init__(self):
        self.curves, self.letters, self.told = {}, [], []
        self.asked = []

    def history(self, experiment, *, points, run_id, last_s):
        self.asked.append((experiment, last_s))
        t, series = self.curves.get(experiment, ([], {}))
        curves = {
            name: known(np.array(t), np.array(values, dtype=float))
            for name, values in series.items()
        }
        t, series = thin(curves, points, last_s)
        return {"experiment": experiment, "run_id": "r1", "t": t, "series": series}

    def dead_letters(self, experiment, limit):
        return {"letters": self.letters[:limit]}

    def events(self, experiment, limit):
        return {"events": self.told[:limit]}


def served(source, past, port=0, access=LOCAL):
    """The dashboard, on a port of its own unless one is named; yields its address."""
    return serving(create_app(source, past, access=access), port)


def partition(group, topic, number=0, state="OK", **changes):
    """A partition that does well, unless told otherwise."""
    return dataclasses.replace(
        PartitionLag(
            place=Place(group, topic, number),
            current=88, committed=80, begin=0, end=100, open_records=0, held=4,
            unsaved=8, lag=12, raw_lag=20, lag_env_steps=24_576, lag_s=0.4,
            lag_s_method="record", produced_per_s=12.3, consumed_per_s=12.1,
            catch_up_s=None, retention_used=0.12, owner="client@host",
            verdict=Verdict(state, 8, "it keeps up"),
        ),
        **changes,
    )  # fmt: skip


def group(name, topic="some.topic", partitions=1, state="OK", **changes):
    numbers = range(partitions)
    found = tuple(partition(name, topic, n, state, **changes) for n in numbers)
    return GroupLag(name, "Stable", 1, found)


def groups_of(experiment, **changes):
    """The processors' group and the learner's."""
    prefix = f"rollstream.{experiment}"
    return (
        group(f"{prefix}.processor", f"{prefix}.trajectories", **changes),
        group(f"{prefix}.learner", f"{prefix}.replay", lag=3, lag_s=0.1),
    )


def process(role, index, rates, heard_at_s, **values):
    return ProcessView(role, index, 7, values, rates, heard_at_s)


def experiment(name="cartpole-dqn", at_s=None, **changes):
    """An experiment that runs, and does well."""
    at_s = at_s or time.time()
    view = ExperimentView(
        experiment=name, run_id="20261130T091741-1799d8", state="running",
        reason="5 roles on 1 agent", managed_by="agents", env_steps=91_161,
        env_steps_per_s=9_278.4, updates=1_427, updates_per_s=71.2, policy_version=26,
        episodes=1_204, mean_return=496.8, is_greedy=True, loss=0.0123, dead_letters=0,
        experience=Experience(
            policy_lag_versions={"mean": 1.4, "p95": 3.0, "max": 5.0},
            policy_lag_s={"mean": 1.9, "p95": 4.2, "max": 8.1},
            data_age_s={"p50": 1.2, "p95": 6.5}, samples_per_insert=8.1,
            wait_ratio=0.07, adoption_s={"w0": 0.21, "w1": 0.34},
            silent_s={"w0": 0.4, "w1": 0.6},
        ),
        processes=(
            process("evaluator", 0, {}, at_s - 2.1, policy_version=25),
            process("learner", 0, {"updates": 71.2}, at_s - 0.3, policy_version=26),
            process("processor", 0, {"batches": 12.1}, at_s - 0.7),
            process("worker", 0, {"env_steps": 4_640.0}, at_s - 0.4, policy_version=26),
            process("worker", 1, {"env_steps": 4_638.4}, at_s - 0.6, policy_version=25),
        ),
        alerts=(),
    )  # fmt: skip
    return dataclasses.replace(view, **changes)


def moment(*views, groups=None, at_s=None, problem=""):
    """A snapshot of now."""
    at_s = at_s or time.time()
    if groups is None:
        groups = tuple(each for view in views for each in groups_of(view.experiment))
    return Snapshot(at_s, LagReport(at_s, groups), views, problem)


def field(page, name, within="#chosen"):
    return page.locator(f"{within} [data-field={name}]").first


def curves(hours=1.0, step_s=2.0, seed=0):
    """A past of some hours, in which every series moves."""
    rng, count = random.Random(seed), int(hours * 3600 / step_s)
    end_s = time.time()
    t = [end_s - (count - n) * step_s for n in range(count)]
    names = (
        "return", "env_steps_per_s", "updates_per_s", "loss", "policy_lag_versions",
        "data_age_s", "lag_trajectories", "lag_replay", "lag_s_trajectories",
        "lag_s_replay",
    )  # fmt: skip
    series = {name: [rng.gauss(50, 5) for _ in t] for name in names}
    series["env_steps"] = [100.0 * n for n in range(count)]
    series["eval_return"] = [100.0 if n % 60 == 0 else None for n in range(count)]
    return t, series


def expect_drawn(page, name):
    """Wait until many pixels of a chart have the colour of its first curve."""
    page.wait_for_function(
        """(name) => {
          const canvas = document.querySelector(`[data-chart=${name}] canvas`);
          if (!canvas) return false;
          const probe = document.body.appendChild(document.createElement("i"));
          probe.style.color = "var(--curve-0)";
          const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
          probe.remove();
          const { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          let found = 0;
          for (let n = 0; n < data.length; n += 4) {
            const far = Math.abs(data[n] - r) + Math.abs(data[n + 1] - g) +
              Math.abs(data[n + 2] - b);
            if (data[n + 3] > 128 && far < 24) found++;
          }
          return found > 300;
        }""",
        arg=name,
    )
