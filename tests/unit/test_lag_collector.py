"""Groups and topics -> what is looked at; and what a report says of what was seen."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError

from infra.errors import KafkaUnavailable
from infra.kafka.coordinators import SILENT, GroupAnswer
from infra.kafka.group_protocol import GroupDescription
from infra.kafka.identity import TopicIdentity
from infra.monitoring import alert_rules, follow, run_fold
from infra.monitoring.lag.collector import _ahead_s, _places
from infra.monitoring.lag.groups import Group, Groups, list_groups
from infra.monitoring.lag.model import LagReport, Place, Sample, Standing
from infra.monitoring.lag.own_groups import LEARNS, READS, experiment_of, topic_of
from infra.monitoring.lag.reports import Look, report_of
from infra.monitoring.lag.window import Window
from infra.settings import Settings
from rollstream import lag_groups

T0, T1 = Place("g", "t", 0), Place("g", "t", 1)
SAMPLE = Sample(100.0, committed=8, begin=0, end=10, stable_end=10, topic_id="id")


def group(committed=None, problem="", **values):
    values = {"state": "Stable", "members": 1, **values}
    return Group(committed=committed, problem=problem, **values)


@pytest.mark.parametrize(
    "name, topic",
    [
        ("rollstream.cart-1.processor", "rollstream.cart-1.trajectories"),
        ("rollstream.cart-1.archiver", "rollstream.cart-1.trajectories"),
        ("rollstream.cart-1.learner", "rollstream.cart-1.replay"),
        ("rollstream.cart-1.worker", None),
        ("rollstream.-.processor", None),
        ("rollstream.a.b.processor", None),
        ("rollstream.a.processor\n", None),
        ("somebody-elses", None),
    ],
)
def test_our_groups_are_known_by_their_names(name, topic):
    assert topic_of(name) == topic
    assert experiment_of(name) == ("cart-1" if topic else None)


def test_who_reads_what_is_said_once():
    assert READS is run_fold.READS and follow.READS is LEARNS
    assert {role: READS[role] for role in LEARNS} == LEARNS
    assert set(alert_rules.GROUP_ROLES) == set(READS)


def test_what_is_committed_assigned_or_ours_is_looked_at():
    ours = "rollstream.e.learner"
    groups = {
        "g": group({("t", 0): 1}, owners={("t", 1): "c@h"}),
        ours: group({}),
        "silent": group(None, "no answer", owners={("t", 0): "c@h"}),
    }
    topics = {"t": TopicIdentity("a", 2), "rollstream.e.replay": TopicIdentity("b", 2)}
    places, unread = _places(groups, topics, {})
    mine = [Place(ours, "rollstream.e.replay", n) for n in range(2)]
    assert sorted(places) == [T0, T1, *mine]
    assert unread == {}


def test_what_cannot_be_looked_at_is_told():
    where = {("t", -1): 1, ("t", 0): 1, ("t", 1): 1, ("t", 2): 1, ("gone", 0): 1}
    topics = {"t": TopicIdentity("a", 2, frozenset({1}))}
    places, unread = _places({"g": group(where)}, topics, {"gone": "no such topic"})
    assert places == [T0]
    assert unread == {
        T1: "no broker leads it",
        Place("g", "t", -1): "there is no such partition any more",
        Place("g", "t", 2): "there is no such partition any more",
        Place("g", "gone", 0): "no such topic",
    }


def look(samples, unread=None, **groups):
    return Look(200.0, 0.1, groups, samples, unread or {})


def test_a_partition_that_could_not_be_read_keeps_what_was_known():
    windows = {T0: Window(SAMPLE), T1: Window(SAMPLE)}
    seen = look({T0: SAMPLE}, {T1: "away"}, g=group({("t", 0): 8, ("t", 1): 8}))
    (found,) = report_of(seen, windows, {}).groups
    assert [each.lag for each in found.partitions] == [2, 2]
    assert found.problem == "t[1]: away"
    (found,) = report_of(seen, {T0: windows[T0]}, {}).groups
    assert [each.place for each in found.partitions] == [T0], "nothing was known"


def test_a_group_whose_coordinator_is_silent_keeps_what_was_known():
    before = report_of(look({T0: SAMPLE}, g=group({})), {T0: Window(SAMPLE)}, {})
    seen = look({}, g=group(None, "no answer"), new=group(None, "no answer"))
    old, new = report_of(seen, {}, {}, before).groups
    assert (old.lag, old.problem) == (2, "no answer")
    assert (new.lag, new.partitions) == (None, ())
    assert isinstance(before, LagReport) and before.took_s == 0.1


def test_env_steps_are_counted_where_a_record_is_known():
    windows = {T0: Window(SAMPLE)}
    (found,) = report_of(look({T0: SAMPLE}, g=group({})), windows, {"g": 32}).groups
    assert found.lag_env_steps == 64


def test_many_problems_are_told_in_one_line():
    unread = {Place("g", "t", n): "away" for n in range(3)}
    (found,) = report_of(look({}, unread, g=group({}, "late")), {}, {}).groups
    assert found.problem == "late; t[0]: away (and 2 more partitions)"


@pytest.mark.parametrize("rows", [math.inf, -math.inf, math.nan, 1e308])
@pytest.mark.parametrize("committed", [0, 8, 10])
def test_steps_that_are_no_number_are_not_known(rows, committed):
    windows = {T0: Window(replace(SAMPLE, committed=committed))}
    (found,) = report_of(look({T0: SAMPLE}, g=group({})), windows, {"g": rows}).groups
    assert found.lag == 10 - committed
    assert found.lag_env_steps in (None, 0)


def test_a_partition_that_makes_no_sense_spoils_no_other():
    other = Place("h", "t", 0)
    windows = {T0: Window(), T1: Window(SAMPLE), other: Window(SAMPLE)}
    seen = look(dict.fromkeys(windows, SAMPLE), g=group({}), h=group({}))
    one, two = report_of(seen, windows, {}).groups
    assert [each.place for each in one.partitions] == [T1]
    assert one.problem.startswith(
        "t[0]: it makes no sense to us: ValueError: no sample"
    )
    assert (two.lag, two.problem) == (2, "")


def test_how_far_the_clocks_are_apart_is_said_by_who_told_something_last():
    told = {
        T0: Standing(1, 0, 50.0, ahead_s=7.0),
        T1: Standing(1, 0, 60.0, ahead_s=8.0),
        Place("h", "t", 0): Standing(1, 0, 70.0),
    }
    assert _ahead_s(told) == 8.0
    assert _ahead_s({}) == 0.0


class Broker:
    """Lists groups, and coordinates them."""

    def __init__(self):
        self.listed = {}
        self.errors = []
        self.answers = {}
        self.described = []
        self.odd = ""

    def list(self, name, state="STABLE", kind="CLASSIC", simple=False):
        self.listed[name] = SimpleNamespace(
            group_id=name,
            state=ConsumerGroupState[state],
            type=ConsumerGroupType[kind],
            is_simple_consumer_group=simple,
        )

    def list_consumer_groups(self, request_timeout):
        future = Future()
        valid = list(self.listed.values())
        future.set_result(SimpleNamespace(valid=valid, errors=self.errors))
        return future

    def ask(self, groups, describe, timeout_s):
        self.described.append(dict(describe))
        found = {g: self.answers.get(g, GroupAnswer({})) for g in groups}
        for name in describe:
            description = GroupDescription("Stable", 2, {("t", 0): "c@h"}, self.odd)
            found[name] = GroupAnswer(found[name].committed, description)
        return found


@pytest.fixture
def broker():
    return Broker()


def read(groups, broker):
    return groups.read(broker, broker, 1.0)


def test_only_wanted_groups_are_asked_for(broker):
    broker.list("a")
    broker.list("b")
    assert list(read(Groups(lambda name: name == "a"), broker)) == ["a"]


def test_what_is_wanted_may_change(broker):
    broker.list("a")
    broker.answers["a"] = GroupAnswer({("t", 0): 1})
    named = {"a"}
    by_name, by_condition = Groups(named), Groups(lambda name: name in named)
    assert list(read(by_name, broker)) == list(read(by_condition, broker)) == ["a"]
    named.clear()
    assert read(by_name, broker) == read(by_condition, broker) == {}
    named.add("b")
    assert list(read(by_name, broker)) == ["b"]


def test_members_are_asked_for_where_there_can_be_any(broker):
    broker.list("stable")
    broker.list("new", kind="CONSUMER", state="UNKNOWN")
    broker.list("empty", "EMPTY")
    broker.list("simple", "EMPTY", simple=True)
    found = read(Groups(lambda name: True), broker)
    assert broker.described == [{"stable": "classic", "new": "consumer"}]
    assert found["stable"].members == 2
    assert found["stable"].owners == {("t", 0): "c@h"}
    assert (found["new"].state, found["new"].members) == ("Stable", 2)
    assert (found["empty"].state, found["empty"].members) == ("Empty", 0)
    # Who reads without being a member may read all the same.
    assert (found["simple"].state, found["simple"].members) == ("Empty", None)


def test_members_are_asked_for_again_after_a_change(broker):
    groups = Groups(["a"])
    broker.list("a")
    read(groups, broker)
    read(groups, broker)
    assert broker.described[1] == {}, "not each second"
    broker.list("a", "PREPARING_REBALANCING")
    read(groups, broker)
    assert broker.described[2] == {"a": "classic"}
    broker.list("a", "EMPTY")
    assert read(groups, broker)["a"].members == 0
    assert read(groups, broker)["a"].owners == {}


def test_what_is_odd_with_members_is_told_in_each_look(broker):
    groups, broker.odd = Groups(["a"]), "what is assigned to c@h makes no sense"
    broker.list("a")
    broker.answers["a"] = GroupAnswer({("t", 0): 1})
    for _ in range(2):
        found = read(groups, broker)["a"]
        assert (found.problem, found.members) == (broker.odd, 2)
        assert found.committed == {("t", 0): 1}
    assert broker.described[1] == {}, "it is remembered"


def test_a_group_that_is_named_is_there_anyway(broker):
    found = read(Groups(["a"]), broker)
    assert found == {"a": Group("", None, committed={})}
    broker.list("a", "EMPTY")
    broker.answers["a"] = GroupAnswer({("t", 0): 1})
    assert read(groups := Groups(["a"]), broker)["a"].members == 0
    del broker.listed["a"], broker.answers["a"]
    assert read(groups, broker) == {"a": Group("", None, committed={})}, "deleted"


def test_a_group_is_gone_only_when_its_coordinator_says_so(broker):
    broker.list("a")
    groups = Groups(lambda name: True)
    broker.answers["a"] = GroupAnswer({("t", 0): 1})
    read(groups, broker)
    del broker.listed["a"]  # its broker has just come back
    broker.answers["a"] = GroupAnswer(None, None, "it loads")
    found = read(groups, broker)["a"]
    assert (found.state, found.members, found.problem) == ("Stable", 2, "it loads")
    broker.answers["a"] = GroupAnswer({("t", 0): 1})
    assert read(groups, broker)["a"].committed
    broker.answers["a"] = GroupAnswer({})
    assert read(groups, broker) == {}
    assert read(groups, broker) == {}


def test_brokers_that_cannot_list_are_unavailable(broker):
    broker.errors = [KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)]
    with pytest.raises(KafkaUnavailable, match="do not answer"):
        read(Groups(["a"]), broker)
    broker.list("a")  # of another broker
    assert list(read(Groups(lambda name: True), broker)) == ["a"]


def test_groups_are_listed_as_far_as_brokers_answer(broker, monkeypatch):
    monkeypatch.setattr(lag_groups, "make_admin", lambda settings: broker)
    chosen = lag_groups.Choice(Settings(), None, None)
    broker.errors = [KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)]
    with pytest.raises(KafkaUnavailable, match="do not answer"):
        chosen._experiments()
    broker.list("rollstream.e.learner")
    broker.list("foreign")
    assert chosen._experiments() == {"e"}
    assert list(list_groups(broker, 1.0)) == ["rollstream.e.learner", "foreign"]


def test_coordinators_that_are_all_silent_are_an_outage(broker):
    broker.list("a", "EMPTY")
    broker.list("b", "EMPTY")
    broker.answers["a"] = GroupAnswer(problem=SILENT)
    assert read(Groups(lambda name: True), broker)["b"].committed == {}
    broker.answers["b"] = GroupAnswer(problem=f"{SILENT}: refused")
    with pytest.raises(KafkaUnavailable, match="all 2 groups do not answer"):
        read(Groups(lambda name: True), broker)
