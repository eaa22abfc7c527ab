"""Sides that take turns: what is kept, measured again, told, and compared."""

import json
import zipfile
from contextlib import contextmanager
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.beside import bench
from benchmarks.beside.bench import Plan, run_bench
from benchmarks.beside.outcomes import Outcomes, Spread, spreads
from benchmarks.beside.peer_side import own_process, peer_side
from benchmarks.beside.report import as_json_object, cells, goals_of, write_page
from benchmarks.beside.section import Figure, Goal, Measured, Place, Section, Side
from benchmarks.beside.sections import SECTIONS, chosen
from benchmarks.children import ChildFailed
from benchmarks.peers import Peer, PeerUnavailable
from infra.errors import RollstreamError

RATE = Figure("steps_per_s", "steps/s", "high")
LATENCY = Figure("p50_ms", "p50, ms", "low", 1)


def measured(rate, p50_ms=None):
    figures = {"steps_per_s": rate}
    return Measured(figures if p50_ms is None else {**figures, "p50_ms": p50_ms}, {})


def side(name, *found, is_ours=False):
    """A side that comes to one after the other, and notes each time it is asked."""
    left = list(found)

    def measure(place):
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Side(name, measure, is_ours)


def section(*sides, **more):
    return Section("work", "Some work", "The same.", (RATE, LATENCY), sides, **more)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    class Cluster:
        def pids(self):
            return {"kafka": 1}

    @contextmanager
    def running(settings, console):
        yield Cluster(), settings

    monkeypatch.setattr(bench, "running", running)


def run(tmp_path, work, rounds=1, **more):
    console = Console(quiet=True)
    plan = Plan([work], rounds, tmp_path, **more)
    run_bench(None, plan, console, as_json=False)
    return Outcomes(tmp_path)


def test_the_median_and_the_range_are_of_the_rounds_that_have_a_figure():
    found = spreads([measured(10, 5.0), measured(40), measured(30, 7.0)])
    assert found["steps_per_s"] == Spread(30, 10, 40, 3)
    assert found["p50_ms"] == Spread(6.0, 5.0, 7.0, 2)


def test_every_other_round_begins_at_the_end(tmp_path):
    work = section(side("a"), side("b"), side("c"))
    turns = [(number, s.name) for _, number, s in Plan([work], 3, tmp_path).turns()]
    assert turns == [
        (1, "a"), (1, "b"), (1, "c"), (2, "c"), (2, "b"), (2, "a"),
        (3, "a"), (3, "b"), (3, "c"),
    ]  # fmt: skip


def test_a_section_may_have_fewer_rounds(tmp_path):
    work = section(side("a"), most_rounds=2)
    assert len(list(Plan([work], 5, tmp_path).turns())) == 2
    assert len(list(Plan([work], 1, tmp_path).turns())) == 1


def test_what_is_no_first_impression_is_left_out_of_a_quick_one(tmp_path):
    work = section(side("a"), replace(side("b"), in_quick=False))
    quick = Plan([work], 1, tmp_path, quick=True)
    assert [each.name for _, _, each in quick.turns()] == ["a"]
    assert len(list(Plan([work], 1, tmp_path).turns())) == 2


def test_what_is_there_is_not_measured_again(tmp_path):
    run(tmp_path, section(side("a", measured(1)), side("b", measured(2))))
    # Neither has an outcome left for the first round.
    more = section(side("a", measured(3)), side("b", measured(4)))
    outcomes = run(tmp_path, more, rounds=2)
    assert outcomes.medians(more) == {
        "a": {"steps_per_s": 2.0},
        "b": {"steps_per_s": 3.0},
    }


def test_half_an_outcome_is_none(tmp_path):
    work = section(side("a", measured(1)))
    path = Outcomes(tmp_path).path(work, work.sides[0], 1)
    path.parent.mkdir(parents=True)
    path.with_suffix(".unfinished").write_text('{"figures":')
    assert Outcomes(tmp_path).of(work, work.sides[0]) == []
    assert run(tmp_path, work).of(work, work.sides[0]) == [measured(1)]


def test_sides_whose_names_begin_alike_are_kept_apart(tmp_path):
    first, second = side("redis", measured(1)), side("redis 2", measured(2))
    work = section(first, second)
    outcomes = run(tmp_path, work)
    assert outcomes.of(work, first) == [measured(1)]
    assert outcomes.of(work, second) == [measured(2)]


@pytest.mark.parametrize(
    "failure",
    [
        ChildFailed("ended with 1"),
        PeerUnavailable("no network"),
        RollstreamError("the pipeline's worker has ended"),
    ],
)
def test_a_side_that_fails_is_named_and_the_rest_goes_on(tmp_path, failure):
    work = section(side("a", failure), side("b", measured(2)))
    with pytest.raises(RollstreamError, match="1 of 2 turns failed: work by a, round"):
        run(tmp_path, work)
    outcomes = Outcomes(tmp_path)
    assert outcomes.medians(work) == {"b": {"steps_per_s": 2}}
    # What there is has been written all the same.
    assert (tmp_path / "work.png").exists()
    (found,) = json.loads((tmp_path / "results.json").read_text())
    assert [s["figures"] for s in found["sides"]] == [
        {},
        {"steps_per_s": {"median": 2, "low": 2, "high": 2, "rounds": 1}},
    ]


def test_an_interrupt_is_no_failure_of_a_side(tmp_path):
    def interrupt(place):
        raise KeyboardInterrupt

    work = section(side("a", measured(1)), Side("b", interrupt))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, work)
    assert Outcomes(tmp_path).of(work, work.sides[0]) == [measured(1)]


def test_a_cell_says_how_ours_compares(tmp_path):
    ours = side("ours", measured(3_000, 10.0), measured(1_000, 30.0), is_ours=True)
    work = section(ours, side("theirs", measured(1_000, 5.0), measured(3_000, 5.0)))
    outcomes = run(tmp_path, work, rounds=2)
    head, rows = cells(work, outcomes)
    assert head == ["", "steps/s", "p50, ms", "rounds"]
    assert rows == [
        ["**ours**", "2,000 (1,000 to 3,000)", "20.0 (10.0 to 30.0)", "2"],
        [
            "theirs",
            "2,000 (1,000 to 3,000), ours 1 x as good",
            # A quarter of ours, and less is better.
            "5.0 (5.0 to 5.0), ours 0.25 x as good",
            "2",
        ],
    ]


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (1, "1,200,000 x"),  # no exponent
        (1_000, "1,200 x"),
        (990_000, "1.2 x"),
        (9_600_000, "0.13 x"),
    ],
)
def test_a_ratio_has_two_digits_that_count(tmp_path, theirs, expected):
    ours = side("ours", measured(1_230_000), is_ours=True)
    work = section(ours, side("theirs", measured(theirs)))
    _, (_, row) = cells(work, run(tmp_path, work))
    assert f"ours {expected} as good" in row[1]


def test_what_was_not_measured_is_a_dash_or_no_row(tmp_path):
    ours = side("ours", measured(0.0), is_ours=True)
    work = section(
        ours, side("theirs", measured(5, 1.0)), side("none", ChildFailed(""))
    )
    with pytest.raises(RollstreamError):
        run(tmp_path, work)
    _, rows = cells(work, Outcomes(tmp_path))
    # Nothing compares with nothing.
    assert rows == [["**ours**", "0", "-", "1"], ["theirs", "5", "1.0", "1"]]


def test_goals_are_reached_or_not_or_not_measured(tmp_path):
    goals = (
        Goal("at least 10", lambda m: m["ours"]["steps_per_s"] >= 10),
        Goal("at least 20", lambda m: m["ours"]["steps_per_s"] >= 20),
        Goal("p50", lambda m: m["ours"]["p50_ms"] <= 1),
        Goal("others", lambda m: m["others"]["steps_per_s"] >= 1),
    )
    work = section(side("ours", measured(15), is_ours=True), goals=goals)
    outcomes = run(tmp_path, work)
    assert goals_of(work, outcomes) == [
        ("at least 10", True),
        ("at least 20", False),
        ("p50", None),
        ("others", None),
    ]
    reached = [goal["reached"] for goal in as_json_object(work, outcomes)["goals"]]
    assert reached == [True, False, None, None]


def test_a_page_keeps_what_is_not_between_its_marks(tmp_path):
    work = section(
        side("ours", measured(7), is_ours=True),
        goals=(Goal("at least 8", lambda m: m["ours"]["steps_per_s"] >= 8),),
    )
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- work -->\nold\n<!-- end of work -->\nafter\n")
    run(tmp_path, work, page=page)
    once = page.read_text()
    assert once == (
        "before\n<!-- work -->\n"
        "|  | steps/s | p50, ms | rounds |\n| --- | ---: | ---: | ---: |\n"
        "| **ours** | 7 | - | 1 |\n\nThe same.\n\n- not reached: at least 8\n"
        "<!-- end of work -->\nafter\n"
    )
    write_page(page, [work], Outcomes(tmp_path))
    assert page.read_text() == once
    assert (tmp_path / "performance-work.png").exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [("", "none"), ("<!-- work -->", "only the first"), (None, "no file")],
)
def test_a_page_without_its_marks_is_left_alone(tmp_path, text, found):
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(RollstreamError, match=f"found {found}"):
        write_page(page, [section(side("ours"))], Outcomes(tmp_path))
    assert text is None or page.read_text() == text


def place(tmp_path):
    return Place(None, {}, tmp_path, True, lambda line: None)


def test_a_child_s_figures_are_those_that_it_wrote(tmp_path, monkeypatch):
    (tmp_path / "doubles.py").write_text(
        "import json, sys\n"
        "job = json.load(open(sys.argv[1]))\n"
        "found = {'figures': {'x': 2 * job['x']}, 'versions': {'y': '1'}}\n"
        "json.dump(found, open(sys.argv[2], 'w'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = own_process("a b", "doubles", lambda place: {"x": 21}).measure(
        place(tmp_path)
    )
    assert found == Measured({"x": 42}, {"y": "1"})


def test_a_child_that_writes_nothing_has_failed_though_it_did_before(tmp_path):
    (tmp_path / "this.found").write_text('{"figures": {}, "versions": {}}')
    with pytest.raises(ChildFailed, match="this: expected figures in .*found none"):
        # It ends well, and prints a poem only.
        own_process("this", "this", lambda place: {}).measure(place(tmp_path))


def test_a_peer_sees_its_own_packages_first_then_ours(tmp_path, monkeypatch):
    script = tmp_path / "peer.py"
    script.write_text(
        "import json, sys, numpy, wheel_of_its_own\n"
        "import benchmarks.beside.scripts.arrivals\n"
        "versions = {'numpy': numpy.__version__, 'own': wheel_of_its_own.NAME}\n"
        "json.dump({'figures': {}, 'versions': versions}, open(sys.argv[2], 'w'))\n"
    )
    wheel = tmp_path / "wheel_of_its_own-1-py3-none-any.whl"
    info = "wheel_of_its_own-1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("wheel_of_its_own.py", "NAME = 'own'\n")
        about = "Metadata-Version: 2.1\nName: wheel-of-its-own\nVersion: 1\n"
        archive.writestr(f"{info}/METADATA", about)
        about = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", about)
        archive.writestr(f"{info}/RECORD", "")
    peer = Peer("own", (str(wheel),), script)

    class Settings:
        cache_dir = tmp_path / "cache"

    here = Place(Settings(), {}, tmp_path, True, lambda line: None)
    found = peer_side("own", peer, lambda place: {}).measure(here)
    assert found.versions["own"] == "own"
    assert found.versions["numpy"]


def test_names_of_sections_and_sides_say_each_one():
    names = [work.name for work in SECTIONS]
    assert len(set(names)) == len(names)
    for work in SECTIONS:
        slugs = {each.slug for each in work.sides}
        assert len(slugs) == len(work.sides), work.name
        assert any(each.is_ours for each in work.sides)
        assert len({figure.key for figure in work.figures}) == len(work.figures)


@pytest.mark.parametrize("work", SECTIONS, ids=lambda work: work.name)
def test_goals_ask_for_figures_that_there_are(work):
    figures = {figure.key: 1.0 for figure in work.figures}
    medians = {each.name: figures for each in work.sides}
    for goal in work.goals:
        assert goal.reached(medians) in (True, False), goal.text


def test_a_section_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=f"{SECTIONS[0].name}.*found no-such"):
        chosen(["no-such"])
    assert chosen([]) == list(SECTIONS)
