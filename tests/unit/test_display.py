import io

import pytest
from rich.console import Console

from infra.control.runs import Tick
from infra.control.scheduler import Assignment
from infra.control.supervisor import Exit
from infra.monitoring.progress import Progress
from rollstream.display import FigureMaker, PlainDisplay, bars, plain_line, render
from rollstream.rates import Rate
from tests.unit.test_progress import RUN, episodes, evaluation, point


def tick(wall_s, *records, exits=(), lag=None):
    progress = Progress(RUN)
    for record in records:
        progress.add(record)
    return Tick(progress, lag or {"processor": 3, "learner": None}, wall_s, list(exits))


def test_a_rate_looks_at_the_last_seconds():
    rate = Rate()
    found = [rate.add(float(second), 10.0 * second) for second in range(20)]
    assert found[0] == 0.0
    assert found[1:] == [10.0] * 19
    assert [rate.add(20.0 + s, 190.0) for s in range(7)][-1] == 0.0


def test_a_counter_that_starts_anew_is_no_negative_rate():
    rate = Rate()
    rate.add(0.0, 100.0)
    assert rate.add(1.0, 5.0) == 0.0
    assert rate.add(2.0, 8.0) == 3.0


def records():
    return [
        point("worker", env_steps=4000),
        point("learner", env_steps=3000, updates=20, policy_version=2),
        episodes([20.0, 30.0]),
        evaluation(100.0),
    ]


def test_a_line_holds_every_figure():
    maker = FigureMaker()
    maker.make(tick(1.0))
    line = plain_line(maker.make(tick(3.0, *records())))
    for part in (
        "3 s", "env steps 3,000 (2,000/s)", "return 25.0", "eval 100.0",
        "updates 20 (10/s)", "policy 2", "processor 3", "learner -",
    ):  # fmt: skip
        assert part in line


def test_the_panel_holds_every_figure():
    console = Console(file=io.StringIO(), width=100)
    console.print(render("cart", FigureMaker().make(tick(1.0, *records()))))
    text = console.file.getvalue()
    for part in (
        "cart",
        "3,000",
        "100.0",
        "lag, processor",
        "1 learner, 1 worker",
        "█",
    ):
        assert part in text


def test_lines_come_every_few_seconds_and_exits_at_once(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    gone = Exit(Assignment("worker", 1), -9, 1, False, tmp_path / "log", "[boom] x")
    with PlainDisplay(console) as display:
        for wall_s in (0.0, 1.0, 2.0):
            display.show(tick(wall_s, exits=[gone] if wall_s == 1.0 else []))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2
    assert "worker/1 ended with code -9: [boom] x; restarted" in lines[1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([0.0], ""), ([0.0, 500.0], "evaluations ▁█"), ([-5.0, 1.0], "▁█")],
)
def test_bars_go_from_zero_to_the_largest(values, expected):
    assert bars(values).endswith(expected)
