"""What an elastic experiment did, second by second -> a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Moment:
    """A second of it.

    Attributes:
        at_s: since its beginning.
        workers: that are planned.
        wait_ratio: of the learner, since the moment before; None: not known.
        replay_lag: records that it has not read; None: not known.
    """

    at_s: float
    workers: int
    wait_ratio: float | None
    replay_lag: int | None


def write_plot(
    moments: Sequence[Moment],
    marks: Sequence[tuple[float, str]],
    bounds: tuple[float, float],
    path: Path,
) -> None:
    """Write workers, wait ratio and lag over time.

    Args:
        moments: in order.
        marks: what was done from outside, and when.
        bounds: of the wait ratio, and of the lag a worker.
        path: of the PNG.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, middle, bottom) = pyplot.subplots(
        3, sharex=True, figsize=(8, 6), dpi=120
    )
    at_s = [m.at_s for m in moments]
    top.step(at_s, [m.workers for m in moments], where="post", color="#1f6feb")
    top.set_ylabel("workers")
    top.set_yticks(range(max(m.workers for m in moments) + 2))
    waits = [(m.at_s, m.wait_ratio) for m in moments if m.wait_ratio is not None]
    middle.plot(*zip(*waits, strict=True), color="#9a6700", linewidth=1)
    middle.axhline(bounds[0], color="#d1242f", linestyle="--", linewidth=1)
    middle.set_ylabel("learner waits,\nshare of time")
    middle.set_ylim(0, 1.05)
    lags = [(m.at_s, m.replay_lag) for m in moments if m.replay_lag is not None]
    bottom.plot(*zip(*lags, strict=True), color="#116329", linewidth=1)
    bottom.step(
        at_s,
        [bounds[1] * m.workers for m in moments],
        where="post",
        color="#d1242f",
        linestyle="--",
        linewidth=1,
    )
    bottom.set(ylabel="replay lag,\nrecords", xlabel="seconds")
    for axes in (top, middle, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        for mark_s, _ in marks:
            axes.axvline(mark_s, color="#9aa5b1", linewidth=1)
    for mark_s, text in marks:
        top.annotate(f" {text}", (mark_s, top.get_ylim()[1]), va="top", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
