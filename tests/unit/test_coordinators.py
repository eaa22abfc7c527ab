"""Coordinators that move, load, refuse, hang up or say nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import closing
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from infra.kafka import coordinators
from infra.kafka.coordinators import SILENT, Coordinators
from infra.kafka.group_protocol import DescribeClassics, DescribeConsumers
from infra.settings import Settings

LOADING, NOT_COORDINATOR, REFUSED, NOT_FOUND = 14, 16, 30, 69
PATIENCE_S = 60.0


class Brokers:
    """Two; ``of`` says who coordinates a group, ``errors`` what is answered first."""

    def __init__(self):
        self.of = defaultdict(lambda: 1)
        self.errors = defaultdict(list)
        self.asked = []
        self.assigned = {}
        self.connected = []
        self.is_silent = self.hangs_up = False

    async def connect(self, host, port, **config):
        self.connected.append(port)
        return Connection(self, port)

    def answer(self, port, request):
        if isinstance(request, FindCoordinatorRequest):
            group = request._coordinator_key
            self.asked.append(("find", group))
            code = (
                self.errors["find", group].pop(0) if self.errors["find", group] else 0
            )
            return SimpleNamespace(error_code=code, host="h", port=self.of[group])
        if isinstance(request, OffsetFetchRequest):
            return self._offsets(port, request._consumer_group)
        groups = request._groups
        self.asked.append((type(request).__name__, *groups))
        if isinstance(request, DescribeClassics):
            return SimpleNamespace(groups=[self._classic(g) for g in groups])
        return SimpleNamespace(groups=[self._consumer(g) for g in groups])

    def _offsets(self, port, group):
        self.asked.append((port, group))
        code = self.errors[group].pop(0) if self.errors[group] else 0
        if port != self.of[group]:
            code = NOT_COORDINATOR
        topics = [("t", [(0, 7, "", 0), (1, -1, "", 0), (2, 0, None, 0)])]
        return SimpleNamespace(error_code=code, topics=None if code else topics)

    def _classic(self, group):
        if group in self.assigned:
            member = ("m", "odd", "/h", b"", self.assigned[group])
            return 0, group, "Stable", "consumer", "own", [member]
        # version 0; topic "t": partitions 0, 2; no user data
        assigned = bytes.fromhex(
            "0000 00000001 0001 74 00000002 00000000 00000002 ffffffff"
        )
        return (
            0,
            group,
            "Stable",
            "consumer",
            "range",
            [("m", "c", "/1.2.3.4", b"", assigned)],
        )

    def _consumer(self, group):
        assignment = ([(bytes(16), "t", [1], {})], {})
        member = ("m", None, None, 1, "c", "/h", ["t"], None, assignment, ([], {}), {})
        code = NOT_FOUND if group == "gone" else 0
        return code, None, group, "Reconciling", 1, 1, "uniform", [member], 0, {}


class Connection:
    def __init__(self, brokers, port):
        self._brokers, self._port = brokers, port
        self._is_open = True

    def connected(self):
        return self._is_open

    async def _answer(self, request):
        if self._brokers.is_silent:
            await asyncio.sleep(3_600)
        if self._brokers.hangs_up:
            self._brokers.hangs_up = False
            raise KafkaConnectionError("hung up")
        return self._brokers.answer(self._port, request)

    def send(self, request):
        return self._answer(request)

    def close(self):
        self._is_open = False
        return None


@pytest.fixture
def brokers(monkeypatch):
    found = Brokers()
    monkeypatch.setattr(coordinators, "create_conn", found.connect)
    monkeypatch.setattr(coordinators, "_PAUSE_S", 0.001)
    return found


@pytest.fixture
def asks(brokers):
    with closing(Coordinators(Settings(bootstrap_servers="h:1"), "test")) as found:
        yield found


def test_committed_offsets_are_those_that_are_there(asks):
    found = asks.ask(["a", "b"], {}, PATIENCE_S)
    assert found["a"].committed == {("t", 0): 7, ("t", 2): 0}
    assert (found["b"].problem, found["b"].description) == ("", None)


def test_coordinators_are_looked_up_once(asks, brokers):
    asks.ask(["a"], {}, PATIENCE_S)
    asks.ask(["a"], {}, PATIENCE_S)
    assert brokers.asked == [("find", "a"), (1, "a"), (1, "a")]
    assert brokers.connected == [1], "over one connection"


def test_a_coordinator_that_is_none_any_more_is_looked_up_again(asks, brokers):
    asks.ask(["a"], {}, PATIENCE_S)
    brokers.of["a"] = 2
    assert asks.ask(["a"], {}, PATIENCE_S)["a"].committed
    assert brokers.asked[-3:] == [(1, "a"), ("find", "a"), (2, "a")]


@pytest.mark.parametrize("what", ["a", ("find", "a")])
def test_one_that_loads_is_asked_until_it_answers(asks, brokers, what):
    brokers.errors[what] = [LOADING, LOADING, 15]
    found = asks.ask(["a", "b"], {}, PATIENCE_S)
    assert found["a"].committed and found["a"].problem == ""
    assert [each for each in brokers.asked if each == (1, "b")] == [(1, "b")]


@pytest.mark.parametrize("what", ["a", ("find", "a")])
def test_a_group_that_is_refused_spoils_no_other(asks, brokers, what):
    brokers.errors[what] = [REFUSED]
    found = asks.ask(["a", "b"], {}, PATIENCE_S)
    assert found["a"].committed is None
    assert "GROUP_AUTHORIZATION_FAILED" in found["a"].problem
    assert found["b"].committed


def test_a_connection_that_is_lost_is_made_again(asks, brokers):
    asks.ask(["a"], {}, PATIENCE_S)
    brokers.hangs_up = True
    assert asks.ask(["a"], {}, PATIENCE_S)["a"].committed
    assert brokers.connected == [1, 1]


def test_who_says_nothing_is_left_after_a_while(asks, brokers):
    brokers.is_silent = True
    found = asks.ask(["a"], {}, 0.05)
    assert (found["a"].committed, found["a"].problem) == (None, SILENT)
    brokers.is_silent = False
    assert asks.ask(["a"], {}, PATIENCE_S)["a"].committed, "it is asked anew"


def test_members_are_told_by_the_protocol_of_the_group(asks):
    found = asks.ask(
        ["a", "b", "gone"],
        {"a": "classic", "b": "consumer", "gone": "consumer"},
        PATIENCE_S,
    )
    classic, consumer = found["a"].description, found["b"].description
    assert (classic.state, classic.members) == ("Stable", 1)
    assert classic.owners == {("t", 0): "c@1.2.3.4", ("t", 2): "c@1.2.3.4"}
    assert (consumer.state, consumer.members) == ("Reconciling", 1)
    assert consumer.owners == {("t", 1): "c@h"}
    assert found["gone"].description is None and found["gone"].committed


ODD_TOPIC = "0000 00000001 0003 742074 00000001 00000000 ffffffff"  # "t t"
NO_TOPIC = "0000 00000001 ffff 00000001 00000000 ffffffff"
EMPTY_TOPIC = "0000 00000001 0000 00000001 00000000 ffffffff"
NEGATIVE = "0000 00000001 0001 74 00000001 ffffffff ffffffff"
NOT_TEXT = "0000 00000001 0001 ff 00000001 00000000 ffffffff"
CUT = "0000 7fffffff 0001 74"


@pytest.mark.parametrize(
    "assigned", ["00", ODD_TOPIC, NO_TOPIC, EMPTY_TOPIC, NEGATIVE, NOT_TEXT, CUT]
)
def test_a_group_whose_assignment_is_odd_spoils_no_other(asks, brokers, assigned):
    brokers.assigned["odd"] = bytes.fromhex(assigned)
    names = ["a", "odd", "z"]
    found = asks.ask(names, dict.fromkeys(names, "classic"), PATIENCE_S)
    for name in ("a", "z"):
        assert found[name].description.owners and found[name].committed
        assert found[name].problem == found[name].description.problem == ""
    odd = found["odd"]
    assert (odd.committed, odd.problem) == (found["a"].committed, "")
    assert (odd.description.members, odd.description.owners) == (1, {})
    assert odd.description.problem == "what is assigned to odd@h makes no sense"


def test_the_new_protocols_request_is_what_kafka_expects():
    from infra.kafka import group_protocol

    request = DescribeConsumers(["ab"]).prepare({69: (0, 1)})
    # compact array of one, "ab", no operations, no tags
    assert request.encode() == bytes.fromhex("02 03 6162 00 00")
    header = request.build_request_header(5, "c")
    assert header.encode() == bytes.fromhex("0045 0000 00000005 0001 63 00")
    assert (
        group_protocol.DescribeClassics(["ab"]).prepare({15: (0, 6)}).API_VERSION == 2
    )
