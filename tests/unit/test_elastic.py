"""How many workers and processors: rules by hand, and a plant that they steer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from infra.control.elastic import Known, Sample, decide
from infra.control.wants import Counts
from tests.unit.learner_specs import spec as make_spec

WINDOW_S, COOL_S = 6.0, 12.0


def spec(workers=None, processor=None, partitions=8):
    scaling = {"windowS": WINDOW_S, "coolDownS": COOL_S}
    full = make_spec()
    values = full.model_dump(mode="json", by_alias=True)
    values["topics"]["partitions"] = partitions
    values["workers"] |= {"min": 1, "max": 8, "replicas": 1, "scaling": scaling}
    values["workers"] |= workers or {}
    values["processor"] |= processor or {}
    return type(full).model_validate(values, by_alias=True, by_name=False)


PARTS = {"workers": "workers", "processors": "processor"}
ELASTIC_PROCESSOR = {
    "min": 1,
    "max": 4,
    "replicas": 1,
    "scaling": {"windowS": WINDOW_S, "coolDownS": COOL_S, "maxLag": 64},
}


def samples(count=8, end_s=100.0, wait=0.0, **values):
    """One each second up to ``end_s``; the learner waits ``wait`` of its time."""
    values = {"replay_lag": 0, "policy_lag": 0.0, "processor_lag": 0, **values}
    return [
        Sample(
            end_s - count + 1 + i,
            50.0 + i,
            wait * i if not callable(wait) else wait(i),
            **{k: v(i) if callable(v) else v for k, v in values.items()},
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("because", "now", "shown", "workers"),
    [
        ("it waits half of its time: twice as many keep it busy", 2, {"wait": 0.5}, 4),
        ("a quarter of it: one more, as 2 / 0.75 < 3", 2, {"wait": 0.25}, 3),
        ("all of it: twice as many at the most", 3, {"wait": 1.0}, 6),
        ("no more than max", 5, {"wait": 1.0}, 8),
        ("at max", 8, {"wait": 1.0}, None),
        ("below its bound", 2, {"wait": 0.19}, None),
        ("waits in a third of it only", 2, {"wait": lambda i: max(0, i - 5)}, None),
        ("lag: 33 records of each of two", 2, {"replay_lag": 67}, 1),
        ("32 of each are allowed", 2, {"replay_lag": 64}, None),
        ("lag that falls by itself", 4, {"replay_lag": lambda i: 900 - 90 * i}, None),
        ("there was none once", 2, {"replay_lag": lambda i: 900 * (i != 4)}, None),
        ("lag at min", 1, {"replay_lag": 900}, None),
        ("old policies", 2, {"policy_lag": 51.0}, 1),
        ("nothing came that has a policy", 2, {"policy_lag": None}, None),
        ("fewer wins over more", 2, {"wait": 0.9, "policy_lag": 51.0}, 1),
        ("too few samples", 2, {"wait": 0.9, "count": 3}, None),
        ("samples of long ago", 2, {"wait": 0.9, "end_s": 96.0}, None),
        ("a learner started again", 2, {"wait": lambda i: i if i < 5 else 0}, None),
        ("20 came since", 2, {"replay_lag": 80, "processed": lambda i: 20 * i}, None),
        ("10 came since", 2, {"replay_lag": 80, "processed": lambda i: 10 * i}, 1),
        ("processors are busy", 2, {"wait": 0.9, "processor_lag": 70}, None),
    ],
)  # fmt: skip
def test_workers(because, now, shown, workers):
    found = decide(spec(), samples(**shown), Known(), Counts(now, 1), 100.0)
    assert found.workers == workers, because
    assert found.processors is None
    assert bool(found.reason) == (workers is not None)


@pytest.mark.parametrize(
    ("because", "now", "shown", "processors"),
    [
        ("65 wait for each", 2, {"processor_lag": 130}, 3),
        ("64 are allowed", 2, {"processor_lag": 128}, None),
        ("no more than there are partitions", 3, {"processor_lag": 900}, None),
        ("nothing waits", 2, {"processor_lag": 0}, 1),
        ("something waits", 2, {"processor_lag": 40}, None),
        ("all came since", 2, {"processor_lag": 40, "processed": lambda i: 40 * i}, 1),
        ("nothing waits, at min", 1, {"processor_lag": 0}, None),
        ("not known", 2, {"processor_lag": None}, None),
    ],
)  # fmt: skip
def test_processors(because, now, shown, processors):
    one = spec(processor=ELASTIC_PROCESSOR | {"max": 3}, partitions=3)
    found = decide(one, samples(**shown), Known(), Counts(1, now), 100.0)
    assert found.processors == processors, because


def test_a_fixed_number_stays():
    fixed = make_spec()
    found = decide(fixed, samples(wait=1.0), Known(), Counts(1, 1), 100.0)
    assert (found.workers, found.processors) == (None, None)


def test_a_change_begins_a_cool_down():
    known = Known(workers_since_s=100.0 - COOL_S + 0.1)
    assert decide(spec(), samples(wait=1.0), known, Counts(2, 1), 100.0).workers is None
    known = Known(workers_since_s=100.0 - COOL_S)
    found = decide(spec(), samples(wait=1.0), known, Counts(2, 1), 100.0)
    assert found.workers == 4 and found.known.workers_since_s == 100.0
    assert "waits" in found.reason and "100%" in found.reason


def test_what_was_too_many_is_tried_again_when_the_wait_asks_for_it():
    known = Known(too_many_workers=3)
    found = decide(spec(), samples(wait=0.3), known, Counts(2, 1), 100.0)
    assert found.workers is None, "2 / 0.7 is less than 3"
    found = decide(spec(), samples(wait=0.5), known, Counts(2, 1), 100.0)
    assert found.workers == 4, "the learner became faster"


@dataclass
class Plant:
    """Workers that each make ``each`` records a second, a learner that takes ``takes``.

    In between processors that do ``does`` a second each.
    """

    each: float
    takes: float
    does: float = 1e9
    now_s: float = 0.0
    waited_s: float = 0.0
    replay: float = 0.0
    waiting: float = 0.0
    processed: float = 0.0

    def second(self, counts: Counts) -> Sample:
        self.waiting += self.each * counts.workers
        done = min(self.waiting, self.does * counts.processors)
        self.waiting -= done
        self.processed += done
        self.replay += done
        taken = min(self.replay, self.takes)
        self.replay -= taken
        self.waited_s += 1.0 - taken / self.takes
        self.now_s += 1.0
        return Sample(
            self.now_s, self.now_s, self.waited_s, int(self.replay), None,
            int(self.waiting), int(self.processed),
        )  # fmt: skip


def steer(wanted, plant, counts, seconds, known=Known()):  # noqa: B008
    """Return what was decided: (at, counts) of each change, the first included."""
    taken, history = [], [(plant.now_s, counts)]
    for _ in range(seconds):
        taken.append(plant.second(counts))
        found = decide(wanted, taken[-20:], known, counts, plant.now_s)
        known = found.known
        new = Counts(
            counts.workers if found.workers is None else found.workers,
            counts.processors if found.processors is None else found.processors,
        )
        if new != counts:
            history.append((plant.now_s, new))
            counts = new
    return history, known


def check(history, wanted):
    for (_, before), (_, now) in zip(history, history[1:], strict=False):
        for role, part in (
            ("workers", wanted.workers),
            ("processors", wanted.processor),
        ):
            count = getattr(now, role)
            if part.is_elastic:
                assert part.min <= count <= part.max
            else:
                assert count == getattr(before, role)
    for role in ("workers", "processors"):
        times = [
            at_s
            for (_, before), (at_s, now) in zip(history, history[1:], strict=False)
            if getattr(before, role) != getattr(now, role)
        ]
        gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
        assert all(gap >= COOL_S for gap in gaps), gaps


def turns(history, role):
    """How often its number began to rise after it fell, or to fall after it rose."""
    numbers = [getattr(counts, role) for _, counts in history]
    steps = [b - a for a, b in zip(numbers, numbers[1:], strict=False) if a != b]
    return sum(a * b < 0 for a, b in zip(steps, steps[1:], strict=False))


rates = st.floats(1.0, 200.0)
# What fails is printed whole, and needs no shrinking.
quick = settings(
    deadline=None,
    max_examples=25,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)


@quick
@given(each=rates, takes=rates, workers=st.integers(1, 8))
@example(each=8.0, takes=24.0, workers=1)
@example(each=200.0, takes=10.0, workers=8)
def test_workers_settle_with_a_constant_load(each, takes, workers):
    wanted, plant = spec(), Plant(each, takes)
    history, _ = steer(wanted, plant, Counts(workers, 1), 600)
    check(history, wanted)
    settled_s, last = history[-1]
    assert settled_s < 400, history
    # Once up and down, when the first step over the edge shows where that is.
    assert turns(history, "workers") <= 1, history
    made = each * last.workers
    if made > takes * 1.01:
        assert last.workers == 1 or plant.replay <= (32 + each) * last.workers
    elif last.workers < 8:
        assert 1 - made / takes <= 0.21 or made + each > takes, history


@quick
@given(each=rates, does=rates, processors=st.integers(1, 4))
@example(each=50.0, does=30.0, processors=1)
def test_processors_settle_with_a_constant_load(each, does, processors):
    wanted = spec(workers={"max": 1}, processor=ELASTIC_PROCESSOR)
    plant = Plant(each, takes=1e6, does=does)
    history, _ = steer(wanted, plant, Counts(1, processors), 600)
    check(history, wanted)
    settled_s, last = history[-1]
    assert settled_s < 500, history
    assert turns(history, "processors") <= 2, history
    needed = min(4, math.ceil(each / does))
    assert last.processors >= needed or plant.waiting <= 64 * last.processors + each


@quick
@given(rates, rates, rates, st.integers(1, 8), st.integers(1, 4))
@example(8.0, 24.0, 9.0, 1, 1)
@example(6.0, 34.0, 11.0, 1, 1)
def test_both_settle_with_a_constant_load(each, takes, does, workers, processors):
    wanted = spec(processor=ELASTIC_PROCESSOR)
    plant = Plant(each, takes, does)
    history, _ = steer(wanted, plant, Counts(workers, processors), 900)
    check(history, wanted)
    assert history[-1][0] < 700, history


def test_a_learner_that_becomes_slower_and_faster_again_is_followed():
    wanted = spec()
    plant = Plant(each=10.0, takes=75.0)
    history, known = steer(wanted, plant, Counts(1, 1), 300)
    assert history[-1][1].workers == 7, "6 would leave it waiting 20 % of its time"
    plant.takes = 25.0
    slower, known = steer(wanted, plant, history[-1][1], 600, known)
    assert slower[-1][1].workers == 2
    plant.takes = 75.0
    faster, _ = steer(wanted, plant, slower[-1][1], 600, known)
    assert faster[-1][1].workers in (6, 7)
    for each in (history, slower, faster):
        check(each, wanted)
        assert turns(each, "workers") <= 1


def test_samples_of_noise_cause_no_more_changes_than_cool_downs_allow():
    moment = st.tuples(st.floats(0, 1), st.integers(0, 10_000), st.integers(0, 10_000))

    @quick
    @given(st.lists(moment, min_size=100, max_size=100))
    def hold(noise):
        wanted = spec(processor=ELASTIC_PROCESSOR)
        counts, known, taken, waited_s = Counts(4, 2), Known(), [], 0.0
        history = [(0.0, counts)]
        for second, (wait, replay, waiting) in enumerate(noise, 1):
            waited_s += wait
            taken.append(
                Sample(second, second, waited_s, replay, None, waiting, 10 * second)
            )
            found = decide(wanted, taken[-20:], known, counts, float(second))
            known = found.known
            new = replace(
                counts,
                workers=found.workers or counts.workers,
                processors=found.processors or counts.processors,
            )
            if new != counts:
                counts = new
                history.append((float(second), counts))
        check(history, wanted)

    hold()
