"""The dashboard on a real broker: what it says is what the topics say."""

import json
import time
import urllib.error
import urllib.request
import uuid
from contextlib import closing

import pytest

from infra.errors import KafkaUnavailable
from infra.kafka.dead_letters import dead_letter
from infra.kafka.peeking import make_peeker
from infra.monitoring.dashboard import history, metric_rows, metrics_log
from infra.monitoring.dashboard import past as past_module
from infra.monitoring.dashboard.curves import SERIES
from infra.monitoring.dashboard.past import TopicPast
from infra.monitoring.dashboard.sources import Unknown
from infra.monitoring.experiment_events import make_event
from infra.monitoring.lag.model import GroupLag, PartitionLag, Place, Verdict
from infra.monitoring.lag_history import history_values
from schemas.codec import encode
from schemas.records import SourceRef, StreamEnd
from schemas.topics import DEAD_LETTERS, EVENTS, TRAJECTORIES, topic_name
from tests.integration.dashboard_rig import (
    RUN,
    MetricsWriter,
    ask_json,
    running_dashboard,
)
from tests.integration.foreign_groups import commit_offsets
from tests.unit.envs.graphs import RUN_ID
from tests.unit.envs.trial import Trial, until

pytestmark = pytest.mark.kafka

T0 = 1_790_000_000.0
DAY_S = 24 * 3600


@pytest.fixture
def writer(settings):
    made = MetricsWriter(settings)
    yield made
    made.delete()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Brokers on a busy machine may take their time: what is read is tested here."""
    for module in (metrics_log, metric_rows, past_module):
        monkeypatch.setattr(module, "_TIMEOUT_S", 60.0)


@pytest.fixture
def past(settings):
    with closing(TopicPast(settings)) as found:
        yield found


@pytest.fixture
def trial(settings):
    made = Trial(settings)
    yield made
    made.close()


def whole(past, name, **asked):
    """The history, once all of it is read."""

    def read():
        found = past.history(name, **({"points": 600} | asked))
        return found if found["complete"] else None

    return until(read)


def group_lag(role, lag, lag_s):
    place = Place(f"rollstream.x.{role}", "rollstream.x.t", 0)
    found = PartitionLag(
        place, 0, 0, 0, 0, 0, 0, 0, lag, lag, None, lag_s, "record", None, None, None,
        None, "", Verdict("OK", 1, ""),
    )  # fmt: skip
    return GroupLag(place.group, "Stable", 1, (found,))


def test_the_history_is_what_the_metrics_say(writer, past):
    for second in range(100):
        at_s = T0 + second
        writer.learner(
            at_s, 50.0 * second, updates=5.0 * second, loss=1.0 / (1 + second),
            policy_lag_versions_mean=2.0, data_age_s_p50=float("nan"),
        )  # fmt: skip
        writer.episodes(at_s, [float(second)] * 10, worker=second % 2)
        if second % 5 == 0:
            # As the leader says it, in the very names.
            values = history_values(
                {
                    "processor": group_lag("processor", second, 0.5),
                    "learner": group_lag("learner", 2 * second, None),
                }
            )
            writer.point(at_s, values, "monitor")
        if second % 30 == 0:
            writer.evaluation(at_s, [second, second + 2.0])
        writer.point(at_s, {}, "processor")
        writer.point(at_s, {}, "learner")  # a beat says nothing
        writer.learner(at_s, 1e9, run_id="an-older-run")
        writer.raw("learner/0", b"garbage", at_s)
        writer.raw("<img onerror=x>", b"\0\0\0\0\0", at_s)
    writer.flush()
    found = whole(past, writer.name, run_id=RUN)
    assert found["experiment"] == writer.name and found["run_id"] == RUN
    assert set(found["runs"]) == {RUN, "an-older-run"}
    series, axis = found["series"], found["t"]
    assert tuple(series) == SERIES
    # 99 s in buckets of a second; the last holds two reports.
    assert len(axis) == 198 and axis[0] == pytest.approx(T0 + 0.25)
    assert series["env_steps"][:196:2] == [50.0 * second for second in range(98)]
    assert series["env_steps"][-2:] == [50.0 * 98, 50.0 * 99]
    assert series["loss"][-2:] == [1 / 99, 1 / 100]
    assert series["env_steps_per_s"][20:] == [50.0] * 178
    assert series["updates_per_s"][20:] == [5.0] * 178
    assert set(series["policy_lag_versions"]) == {2.0}
    assert set(series["data_age_s"]) == {None}
    assert series["lag_trajectories"][:12] == [0.0] * 10 + [5.0] * 2
    assert series["lag_replay"][10:20] == [10.0] * 10
    assert set(series["lag_s_replay"]) == {None}
    assert series["eval_return"][60:62] == [31.0, 31.0]
    assert series["eval_return"][2:60] == [None] * 58
    # Of the last hundred episodes: those of the last ten seconds.
    assert series["return"][-1] == pytest.approx(sum(range(90, 100)) / 10)
    recent = whole(past, writer.name, run_id=RUN, last_s=10.0)
    assert recent["t"][0] == pytest.approx(T0 + 89.25) and len(recent["t"]) == 20


def _note_what_is_read(monkeypatch):
    read, row_of = [], metric_rows.row_of
    monkeypatch.setattr(
        metric_rows, "row_of", lambda message: read.append(message) or row_of(message)
    )
    return read


def test_a_history_goes_on_where_it_was_read_to(writer, past, monkeypatch):
    for second in range(50):
        writer.learner(T0 + second, second)
    writer.flush()
    assert whole(past, writer.name)["series"]["env_steps"][-1] == 49
    read = _note_what_is_read(monkeypatch)
    writer.learner(T0 + 50, 1000)
    writer.flush()
    until(lambda: whole(past, writer.name)["series"]["env_steps"][-1] == 1000)
    assert [message.offset for message in read] == [50]


def test_a_long_history_is_skimmed_and_then_read_from_its_end(
    writer, past, monkeypatch
):
    for k in range(2_000):
        writer.learner(T0 + 20 * k, k)
    writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(metrics_log, "FIRST_RECORDS", 100)
        patch.setattr(metrics_log, "CHUNK_RECORDS", 100)
        patch.setattr(metric_rows, "SKIM_S", 60.0)
        patch.setattr(metric_rows, "PLACES", 10)
        # Nobody reads on, so that what was skimmed can be seen.
        patch.setattr(history.MetricsHistory, "_read_on", lambda *_: None)
        first = past.history(writer.name, points=5_000)
        shown = first["series"]["env_steps"]
        assert not first["complete"] and shown[-1] == 1_999
        # Thirty of each ten places, and no gap between them.
        assert None not in shown
        assert set(shown) == {
            *(190 * place + k for place in range(10) for k in range(30)),
            *range(1_900, 2_000),
        }
        # Of what was asked for, all may be there before all is read.
        assert past.history(writer.name, points=600, last_s=1_000.0)["complete"]
    found = whole(past, writer.name, points=5_000)
    assert set(found["series"]["env_steps"]) >= {*range(2_000)}


def test_what_is_read_while_an_answer_is_made_is_not_said_to_be_in_it(
    writer, past, monkeypatch
):
    monkeypatch.setattr(metrics_log, "FIRST_RECORDS", 100)
    monkeypatch.setattr(metrics_log, "CHUNK_RECORDS", 100)
    monkeypatch.setattr(metric_rows, "PLACES", 10)
    monkeypatch.setattr(history.MetricsHistory, "_read_on", lambda *_: None)
    for k in range(1_000):
        writer.learner(T0 + 20 * k, k)
    writer.flush()
    thin = history.thin

    def read_all_and_thin(*args):
        (log,) = past._history._logs.values()
        while log.read_older():
            pass
        return thin(*args)

    monkeypatch.setattr(history, "thin", read_all_and_thin)
    first = past.history(writer.name, points=5_000)
    assert not first["complete"] and 500 not in first["series"]["env_steps"]
    second = past.history(writer.name, points=5_000)
    assert second["complete"] and 500 in second["series"]["env_steps"]


def test_a_log_that_is_skimmed_in_no_time_is_skimmed_evenly(
    writer, settings, monkeypatch
):
    monkeypatch.setattr(metric_rows, "SKIM_S", 0.0)
    for k in range(1_000):
        writer.learner(T0 + 20 * k, k)
    writer.flush()
    with closing(make_peeker(settings, "test")) as consumer:
        found = metric_rows.skim(consumer, writer.topic, 0, 1_000)
        assert found.places == 1 and found.rows[0].values[0] == T0
    turns = sorted(range(8), key=metric_rows._turn)
    assert turns == [0, 4, 2, 6, 1, 5, 3, 7]


def test_what_is_older_than_a_day_is_neither_read_nor_shown(writer, past, monkeypatch):
    monkeypatch.setattr(metrics_log, "FIRST_RECORDS", 50)
    monkeypatch.setattr(metrics_log, "CHUNK_RECORDS", 50)
    for k in range(400):
        writer.learner(T0 + k * 600.0, k)
    writer.flush()
    read = _note_what_is_read(monkeypatch)
    found = whole(past, writer.name)
    assert min(filter(None, found["series"]["env_steps"])) == 399 - DAY_S / 600
    assert len(read) <= 200


def test_a_topic_that_is_made_anew_has_a_history_of_its_own(writer, past):
    for second in range(5):
        writer.learner(T0 + second, 7_000, run_id="before")
    writer.flush()
    assert whole(past, writer.name)["runs"] == ["before"]
    writer.delete()
    # A request may be answered from the last look, within a second.
    until(lambda: _is_unknown(lambda: past.history(writer.name, points=10)))
    writer.make()
    # More than there were, so that the end alone does not tell.
    for second in range(9):
        writer.learner(T0 + second, second, run_id="after")
    writer.flush()

    def found_anew():
        try:
            return whole(past, writer.name)["runs"] == ["after"]
        except Unknown:
            return False

    until(found_anew)
    series = whole(past, writer.name)["series"]
    assert series["env_steps"][0] == 0 and series["env_steps"][-1] == 8


def _is_unknown(ask):
    try:
        ask()
    except Unknown:
        return True
    return False


def test_the_run_that_is_shown_is_the_newest_or_the_one_that_is_named(writer, settings):
    newest = "the-newest"
    for second in range(3):
        writer.learner(T0 + second, 1, run_id="first")
        writer.learner(T0 + second, 2, run_id="second")
    writer.flush()
    with closing(TopicPast(settings, lambda name: newest)) as past:
        # It has said nothing yet: what others said is not its history.
        found = whole(past, writer.name)
        assert found["run_id"] == newest and found["t"] == []
        assert found["series"]["loss"] == []
        assert whole(past, writer.name, run_id="first")["series"]["env_steps"][0] == 1
    with closing(TopicPast(settings)) as past:
        assert whole(past, writer.name)["run_id"] in ("first", "second")


def test_a_day_of_points_is_there_within_a_second(writer, past, capsys, monkeypatch):
    # On a busy machine fewer places are skimmed, and these are further apart.
    monkeypatch.setattr(metric_rows, "SKIM_S", 60.0)
    for k in range(DAY_S // 5):
        at_s = T0 + 5 * k
        writer.learner(
            at_s, k, updates=k, loss=0.5 if k != 9_000 else 99.0,
            **{f"figure_{i}": float(i) for i in range(25)},
        )  # fmt: skip
        writer.point(at_s, {"lag_records/processor": 1.0}, "monitor")
    writer.flush()
    began_s = time.monotonic()
    newest = past.history(writer.name, points=600)
    first_s = time.monotonic() - began_s
    # All of the day is there at once, if coarse.
    shown = newest["series"]["env_steps"]
    assert len(shown) == 600 and shown[-1] == DAY_S // 5 - 1
    assert shown[0] is not None and shown.count(None) < 60
    assert newest["t"][-1] - newest["t"][0] > 0.9 * DAY_S
    found = whole(past, writer.name)
    whole_s = time.monotonic() - began_s
    # A minimum and a maximum of 300 buckets; the spike of one report is there.
    assert len(found["t"]) == 600 and max(found["series"]["loss"]) == 99.0
    assert set(found["series"]["lag_trajectories"]) == {1.0}
    monkeypatch.setattr(metrics_log, "LOOK_S", 0.0)
    past.history(writer.name, points=600)
    again = []
    for _ in range(5):
        began_s = time.monotonic()
        past.history(writer.name, points=600)
        again.append(time.monotonic() - began_s)
    with capsys.disabled():
        print(
            f"\n24 h, a point in 5 s: coarse after {first_s:.2f} s, all after "
            f"{whole_s:.2f} s, from then on {max(again) * 1000:.0f} ms at most"
        )
    assert min(again) < 1.0  # some hundredths on a machine that does nothing else


def test_dead_letters_are_listed_newest_first(trial, past, settings):
    context = trial.context("processor")
    topic = trial.context().topic(TRAJECTORIES)
    for offset in (5, 6, 7):
        error = f"<img src=x onerror=alert({offset})>"
        source = SourceRef(topic, 1, offset)
        dead_letter(trial.sender, context, source, b"w0", b"x" * offset, error)
    letters = SourceRef(context.topic(DEAD_LETTERS), 0, 1)
    dead_letter(trial.sender, context, letters, b"", b"", f"{topic}[1]@99")
    trial.sender.flush(60)
    found = past.dead_letters(trial.name, 2)["letters"]
    assert [letter["number"] for letter in found] == [2, 1]
    age_s = found[0].pop("age_s")
    assert 0 <= age_s < 300
    assert found[0] == {
        "number": 2, "source": topic, "partition": 1, "offset": 7,
        "error": "<img src=x onerror=alert(7)>", "role": "processor/0",
        "reinjected": "",
    }  # fmt: skip
    assert found[1]["offset"] == 6 and found[1]["reinjected"] == f"{topic}[1]@99"
    assert len(past.dead_letters(trial.name, 50)["letters"]) == 3


def test_events_are_listed_newest_first(trial, past):
    def tell(kind, severity, reason):
        event = make_event(trial.name, RUN_ID, "worker", 1, kind, severity, reason)
        trial.sender.send(topic_name(EVENTS, trial.name), encode(event), "worker/1")

    tell("started", "info", "zero")
    trial.sender.send(topic_name(EVENTS, trial.name), b"garbage", "worker/1")
    tell("restarted", "warning", "one")
    trial.sender.flush(60)
    newest, oldest = past.events(trial.name, 10)["events"]
    assert oldest["reason"] == "zero" and oldest["severity"] == "info"
    assert 0 <= newest.pop("age_s") < 300
    assert abs(newest.pop("at_s") - time.time()) < 300
    assert newest == {
        "offset": 2, "run_id": RUN_ID, "severity": "warning", "kind": "restarted",
        "role": "worker", "index": 1, "reason": "one",
    }  # fmt: skip
    assert len(past.events(trial.name, 1)["events"]) == 1


def test_what_is_not_there_is_unknown(past):
    name = f"none-{uuid.uuid4().hex[:8]}"
    with pytest.raises(Unknown, match=name):
        past.history(name, points=10)
    with pytest.raises(Unknown, match=name):
        past.dead_letters(name, 10)
    with pytest.raises(Unknown, match=name):
        past.events(name, 10)


def test_brokers_that_are_away_are_told(settings, monkeypatch):
    monkeypatch.setattr(metrics_log, "_TIMEOUT_S", 0.5)
    nowhere = settings.at("127.0.0.1:1", "127.0.0.1:1")
    with closing(TopicPast(nowhere)) as past:
        with pytest.raises(KafkaUnavailable, match="do not answer"):
            past.history("a", points=10)


def test_a_history_outlives_the_brokers(settings, writer, monkeypatch):
    writer.learner(T0, 1, loss=0.5)
    writer.flush()
    with closing(TopicPast(settings)) as past:
        assert whole(past, writer.name)["problem"] == ""

        def away(*_):
            raise KafkaUnavailable("the brokers are away")

        monkeypatch.setattr(metrics_log, "LOOK_S", 0.0)
        monkeypatch.setattr(metrics_log, "AGAIN_S", 0.0)
        with monkeypatch.context() as patch:
            patch.setattr(metrics_log, "find_topic", away)
            until(lambda: past.history(writer.name, points=9)["problem"])
            found = past.history(writer.name, points=9)
            assert found["problem"] == "the brokers are away"
            assert found["series"]["loss"] == [0.5, 0.5]
        until(lambda: not past.history(writer.name, points=9)["problem"])


def test_the_command_shows_what_is_there(settings, trial):
    """From topics to the browser's side of the socket, and Ctrl-C."""
    group = f"foreign-{uuid.uuid4().hex[:8]}"
    trial.send(TRAJECTORIES, _end(trial), "w0")
    commit_offsets(settings, group, trial.context().topic(TRAJECTORIES), {0: 0})
    with running_dashboard(settings) as url:

        def groups():
            found = ask_json(f"{url}api/snapshot")["lag"]["groups"]
            return {each["group"]: each for each in found}

        until(lambda: group in groups())
        until(lambda: trial.name in _names(ask_json(f"{url}api/snapshot")))
        with urllib.request.urlopen(f"{url}api/stream", timeout=60) as stream:
            seen = []
            while len(seen) < 3:
                line = stream.readline().decode()
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: ")))
        times = [each["at_s"] for each in seen]
        assert times == sorted(set(times))
        assert trial.name in _names(seen[-1])
        found = ask_json(f"{url}api/history?experiment={trial.name}")
        assert found["t"] == [] and found["run_id"] == RUN_ID
        letters = ask_json(f"{url}api/dead-letters?experiment={trial.name}")
        assert letters == {"letters": []}
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask_json(f"{url}api/events?experiment=none-such")
        with refused.value as answer:
            assert answer.code == 404
            assert "none-such" in json.loads(answer.read())["error"]


def _names(snapshot):
    return [each["experiment"] for each in snapshot["experiments"]]


def _end(trial):
    return StreamEnd(trial.name, RUN_ID, "w0", 0, "over", 0)
