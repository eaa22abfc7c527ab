"""What policies were trained on, followed by hand from record to record."""

from __future__ import annotations

import json
import re

import pytest

from archive.lineage import NotRecorded, Told, trace
from rollstream.lineage_command import _lines
from schemas.records import NO_POLICY, DataRange, PolicyRef, ReplayProgress, TrainedOn


def unrolls(experiment, partition=0, first=0, end=10, steps=100, policies=(-1, 4)):
    low, high = (PolicyRef(1, v) if v >= 0 else NO_POLICY for v in policies)
    topic = f"rollstream.{experiment}.trajectories"
    return DataRange(topic, partition, first, end, steps, low, high)


def trained(experiment, version, *data, run_id="r1", epoch=1):
    policy = PolicyRef(epoch, version)
    return TrainedOn(experiment, run_id, policy, 10 * version, data, 1_000)


def replayed(into, source, *data, run_id="r1", source_run_id="r1", **changes):
    values = {
        "experiment": into,
        "run_id": run_id,
        "source": f"{source}/{source_run_id}@id",
        "source_experiment": source,
        "source_run_id": source_run_id,
        "selection": "{}",
        "data": data,
        "blank_steps": 0,
        "done": True,
        "updated_at_ms": 1_000,
    }
    return ReplayProgress(**values | changes)


def asking(*told):
    asked, known = [], {each.experiment: each for each in told}

    def ask(name):
        asked.append(name)
        return known.get(name, Told(name, None))

    return ask, asked


LIVE = Told("live", "r1", (trained("live", 5, unrolls("live", steps=700)),))


def test_a_policy_of_live_workers_has_one_origin():
    ask, _ = asking(LIVE)
    found = trace("live", None, ask)
    assert (found.policy, found.train_step) == (PolicyRef(1, 5), 50)
    assert found.env_steps == 700
    (origin,) = found.origins
    assert (origin.experiment, origin.run_id) == ("live", "r1")
    assert (origin.kind, origin.origins) == ("workers", ())
    assert [root.experiment for root in origin.roots()] == ["live"]


@pytest.mark.parametrize(
    ("version", "epoch", "recorded", "is_exact", "reason"),
    [
        (None, 2, 61, True, "the newest that is known"),
        (40, 1, 40, True, "its own checkpoint"),
        (41, 1, 50, False, "between two: the later had all that it had"),
        (0, 1, 40, False, "before the first"),
        (51, 2, 61, False, "published before a crash, with no checkpoint after it"),
        (61, 2, 61, True, "the last one"),
    ],
)
def test_a_version_has_the_record_of_the_first_checkpoint_after_it(
    version, epoch, recorded, is_exact, reason
):
    records = (
        trained("live", 50, unrolls("live", steps=50)),
        trained("live", 61, unrolls("live", steps=61), epoch=2),
        trained("live", 40, unrolls("live", steps=40)),
        # Of the run before --fresh.
        trained("live", 45, unrolls("live", steps=45), run_id="r0"),
        trained("live", 99, unrolls("live", steps=99), run_id="r0"),
    )
    ask, _ = asking(Told("live", "r1", records))
    found = trace("live", version, ask)
    assert found.policy == PolicyRef(epoch, recorded), reason
    assert found.env_steps == recorded
    assert found.is_exact == is_exact
    lines = list(_lines(found, []))
    if is_exact:
        assert f": trained on {recorded} steps" in lines[0]
    else:
        assert f"version {version}: trained on at most {recorded} steps" in lines[0]
        assert lines[1].startswith(f"as version {recorded} (epoch {epoch}) was")


def test_what_no_checkpoint_followed_is_not_known():
    ask, _ = asking(LIVE, Told("young", "r1"))
    with pytest.raises(NotRecorded, match="up to 5, found 6"):
        trace("live", 6, ask)
    with pytest.raises(NotRecorded, match="found none yet"):
        trace("young", None, ask)


def test_replays_are_followed_to_whoever_acted():
    human = DataRange("minari:human/x-v0", 0, 0, 4, 40, NO_POLICY, NO_POLICY)
    ask, asked = asking(
        Told(
            "mixed",
            "r3",
            (
                trained(
                    "mixed", 9, unrolls("mixed", steps=1), unrolls("past", 0, 5, 9, 60),
                    unrolls("past", 1, 0, 3, 30), run_id="r3",
                ),
            ),
        ),
        Told(
            "past",
            "r2",
            replays=(
                replayed(
                    "past", "middle", unrolls("middle", 0, 0, 50, 200), run_id="r2",
                    source_run_id="m7", selection='{"workers":[[0,1]]}',
                    blank_steps=8, done=False,
                ),
                replayed("past", "elsewhere", unrolls("elsewhere"), run_id="r0"),
            ),
        ),
        Told(
            "middle",
            "m8",
            replays=(
                replayed("middle", "live", unrolls("live"), run_id="m7"),
                replayed(
                    "middle", "minari", human, run_id="m7", source_run_id="human/x-v0"
                ),
                replayed("middle", "other", unrolls("other"), run_id="m8"),
            ),
        ),
        LIVE,
    )  # fmt: skip
    found = trace("mixed", None, ask)
    assert found.env_steps == 91
    own, past = found.origins
    assert (own.experiment, own.kind, own.env_steps) == ("mixed", "workers", 1)
    assert (past.experiment, past.run_id, past.kind) == ("past", "r2", "replay")
    assert past.env_steps == 90
    (middle,) = past.origins
    assert (middle.run_id, middle.blank_steps, middle.done) == ("m7", 8, False)
    live, dataset = middle.origins
    assert (live.experiment, live.kind) == ("live", "workers")
    assert (dataset.kind, dataset.run_id) == ("dataset", "human/x-v0")
    assert [root.experiment for root in past.roots()] == ["live", "minari"]
    assert sorted(asked) == ["live", "middle", "mixed", "past"]
    # And as a person and a program see it.
    lines = list(_lines(found, ["000000000001-00000002"]))
    assert lines == [
        "mixed run r3, policy version 9 (epoch 1): trained on 91 steps",
        "updates: 90",
        "checkpoints on this machine: 000000000001-00000002",
        "mixed run r3: 1 steps (workers acted)",
        "  rollstream.mixed.trajectories[0] offsets 0 to 9: 1 steps by "
        "no policy..version 4 (epoch 1)",
        "past run r2: 90 steps (replayed)",
        "  rollstream.past.trajectories[0] offsets 5 to 8: 60 steps by "
        "no policy..version 4 (epoch 1)",
        "  rollstream.past.trajectories[1] offsets 0 to 2: 30 steps by "
        "no policy..version 4 (epoch 1)",
        "  <- middle run m7: 200 steps, 8 blank, not to its end yet (replayed)",
        '  <-   chosen: {"workers":[[0,1]]}',
        "  <-   rollstream.middle.trajectories[0] offsets 0 to 49: 200 steps by "
        "no policy..version 4 (epoch 1)",
        "  <-   <- live run r1: 100 steps (workers acted)",
        "  <-   <-   rollstream.live.trajectories[0] offsets 0 to 9: 100 steps by "
        "no policy..version 4 (epoch 1)",
        "  <-   <- minari human/x-v0: 40 steps (a dataset of Minari)",
        "  <-   <-   minari:human/x-v0[0] offsets 0 to 3: 40 steps by no policy",
    ]
    values = json.loads(json.dumps(found.to_json()))
    inner = values["trained_on"][1]["replayed_from"][0]["replayed_from"]
    assert [each["kind"] for each in inner] == ["workers", "dataset"]
    assert inner[1]["data"][0]["next_offset"] == 4


def test_replays_in_a_circle_are_shown_once():
    ask, _ = asking(
        Told("a", "r1", (trained("a", 1, unrolls("a")),),
             (replayed("a", "b", unrolls("b")),)),
        Told("b", "r1", (), (replayed("b", "a", unrolls("a")),)),
    )  # fmt: skip
    (a,) = trace("a", None, ask).origins
    (b,) = a.origins
    (again,) = b.origins
    assert (again.experiment, again.kind, again.origins) == ("a", "again", ())


def test_what_was_deleted_is_said_to_be():
    ask, _ = asking(Told("a", "r1", (trained("a", 1, unrolls("gone"), unrolls("a")),)))
    own, gone = trace("a", None, ask).origins
    assert (own.kind, gone.kind, gone.run_id) == ("workers", "forgotten", None)


def test_what_records_say_is_printed_harmlessly():
    odd = "minari:\x1b]0;evil\x07-v0"
    data = DataRange(odd, 0, 0, 1, 1, NO_POLICY, NO_POLICY)
    harm = replayed("a", "\x1b[2J", data, selection='{"x":"\x1b[2J"}')
    ask, _ = asking(Told("a", "r1", (trained("a", 1, unrolls("a"), data),), (harm,)))
    text = "\n".join(_lines(trace("a", None, ask), []))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert "evil" in text
