"""Which versions can be had, from records that are made by hand."""

from dataclasses import replace

import pytest

from infra.policies.chunks import addressed
from infra.policies.shelf import Shelf
from schemas.records import PolicyRef, SourceRef
from tests.unit.envs.graphs import RUN_ID, graph_record, linear_q
from tests.unit.policies.records import ENV, GRAPH, Log, in_chunks, version

POLICIES, HISTORY = "rollstream.exp.policies", "rollstream.exp.policy-history"


class Bench:
    """A shelf, and what is put on it."""

    def __init__(self):
        self.shelf, self.log = Shelf(RUN_ID), Log()

    def put(self, key, record):
        self.shelf.take_policy(self.log.message(POLICIES, key, record))

    def remember(self, record):
        key = str(getattr(record, "version", ""))
        self.shelf.take_history(self.log.message(HISTORY, key, record))

    def put_in_chunks(self, key, record, slot=1):
        manifest, chunks = in_chunks(record, slot=slot)
        for chunk in chunks:
            self.put(f"chunk/{slot}/{chunk.chunk}", chunk)
        self.put(key, manifest)
        return chunks

    @property
    def found(self):
        """By number, what each is kept as."""
        names = ("is_current", "is_best", "in_history")
        return {
            kept.version.version: [n for n in names if getattr(kept, n)]
            for kept in self.shelf.versions()
        }


@pytest.fixture
def bench():
    made = Bench()
    made.put("graph", GRAPH)
    return made


def test_the_newest_the_best_and_the_history_are_found_oldest_first(bench):
    bench.remember(version(0))
    bench.remember(version(25))
    bench.put("best", version(7))
    bench.remember(version(7))
    bench.put("policy", version(31))
    assert list(bench.found.items()) == [
        (0, ["in_history"]),
        (7, ["is_best", "in_history"]),
        (25, ["in_history"]),
        (31, ["is_current"]),
    ]


def test_one_version_may_be_all_three(bench):
    for key in ("policy", "best"):
        bench.put(key, version(25))
    bench.remember(version(25))
    assert bench.found == {25: ["is_current", "is_best", "in_history"]}


def test_a_newer_record_takes_the_place_of_the_one_before(bench):
    for number in (1, 2, 3):
        bench.put("policy", version(number))
    bench.put("best", version(1))
    bench.put("best", version(2))
    assert bench.found == {2: ["is_best"], 3: ["is_current"]}


def test_what_a_superseded_learner_still_sends_is_not_the_newest(bench):
    bench.put("policy", version(5, epoch=4))
    bench.put("policy", version(9, epoch=3))
    assert bench.found == {5: ["is_current"]}


def test_sizes_and_addresses_are_told_without_keeping_tensors(bench):
    record = version(25)
    bench.put("policy", version(24))
    bench.put("policy", record)
    (kept,) = bench.shelf.versions()
    assert kept.ref == PolicyRef(0, 25) and kept.version.train_step == 250
    assert kept.bytes == len(record.tensors) and kept.parameters == 9
    assert kept.graph == SourceRef(POLICIES, 0, 0)
    assert kept.manifest == SourceRef(POLICIES, 0, 2) and kept.parts == (kept.manifest,)
    assert kept.version.tensors == b""


def test_a_version_in_chunks_is_found_with_all_of_them(bench):
    record = version(4)
    chunks = bench.put_in_chunks("policy", record)
    (kept,) = bench.shelf.versions()
    assert kept.bytes == len(record.tensors)
    assert [part.offset for part in kept.parts] == [1 + i for i in range(len(chunks))]


def test_a_version_whose_chunks_another_has_overwritten_is_gone(bench):
    manifest, _ = in_chunks(version(0))
    bench.put_in_chunks("policy", version(0))
    bench.remember(manifest)
    assert bench.found == {0: ["is_current", "in_history"]}
    bench.put_in_chunks("policy", version(2))
    assert bench.found == {2: ["is_current"]}
    assert bench.shelf.lost() == (PolicyRef(0, 0),)


def test_the_best_in_chunks_is_had_though_its_copy_in_the_history_is_not_whole(bench):
    manifest, _ = in_chunks(version(3), slot=2)
    bench.put_in_chunks("best", version(3), slot=2)
    bench.remember(manifest)
    bench.put_in_chunks("policy", version(4))
    assert bench.found == {3: ["is_best", "in_history"], 4: ["is_current"]}


def at(number, *offsets, slot=1):
    return addressed(version(number, slot=slot), b"x" * 70, offsets)


def test_a_version_that_says_where_its_chunks_are_is_found_by_its_address(bench):
    bench.put("policy", at(4, 7, 9))
    (kept,) = bench.shelf.versions()
    chunks = "rollstream.exp.policy-chunks"
    assert kept.parts == (SourceRef(chunks, 0, 7), SourceRef(chunks, 0, 9))
    assert kept.bytes == 70 and kept.is_current and not bench.shelf.lost()


def test_of_large_versions_only_the_newest_of_each_slot_is_there(bench):
    for number, slot in ((10, 2), (20, 3), (30, 2)):
        bench.put("best", at(number, number, slot=slot))
        bench.remember(at(number, number, slot=slot))
    bench.put("policy", at(41, 50, slot=1))
    bench.remember(version(25))
    assert bench.found == {
        20: ["in_history"],
        25: ["in_history"],
        30: ["is_best", "in_history"],
        41: ["is_current"],
    }
    assert bench.shelf.lost() == (PolicyRef(0, 10),)


def test_a_version_is_not_had_without_its_graph(bench):
    other = graph_record(linear_q(2, 2), ENV)
    bench.put("policy", version(1, graph=other))
    assert bench.found == {} and bench.shelf.lost() == (PolicyRef(0, 1),)
    bench.put("graph", other)
    assert bench.found == {1: ["is_current"]}
    # The one before stays for those that were made with it, until it is compacted.
    bench.remember(version(0))
    assert bench.found == {0: ["in_history"], 1: ["is_current"]}


def test_other_runs_tombstones_and_garbage_are_passed_over(bench):
    bench.put("policy", version(1))
    bench.put("policy", version(9, run_id="another"))
    bench.put("best", None)
    bench.put("policy", b"\x00garbage")
    bench.remember(version(8, run_id="another"))
    bench.remember(b"")
    assert bench.found == {1: ["is_current"]}
    assert bench.shelf.refused == 2


def test_a_topic_that_was_made_anew_is_forgotten_and_the_other_is_not(bench):
    bench.put("policy", version(1))
    bench.remember(version(0))
    bench.shelf.forget_policies()
    assert bench.found == {} and bench.shelf.lost() == (PolicyRef(0, 0),)
    bench.put("graph", GRAPH)
    assert bench.found == {0: ["in_history"]}
    bench.shelf.forget_history()
    assert bench.found == {}


@pytest.mark.timeout(90)
def test_a_version_of_more_chunks_than_there_are_is_lost(bench):
    manifest = replace(version(3), tensors=b"", num_chunks=2**31 - 1)
    bench.put("policy", manifest)
    bench.put("best", version(2))
    assert list(bench.found) == [2]
    assert bench.shelf.lost() == (PolicyRef(0, 3),)


@pytest.mark.parametrize("shape", ["[1e999]", f"[1{'0' * 4000}, 1{'0' * 4000}]"])
def test_a_header_that_says_nothing_hides_no_other_version(bench, shape):
    header = b'{"a":{"shape":%b}}' % shape.encode()
    data = len(header).to_bytes(8, "little") + header
    bench.put("policy", replace(version(3), tensors=data))
    bench.put("best", version(2))
    assert [kept.parameters for kept in bench.shelf.versions()] == [9, None]
