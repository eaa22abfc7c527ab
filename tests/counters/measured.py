"""The counters that need no broker, by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice, repeat
from typing import Any

from infra.settings import Settings
from producers.environments import make_environments
from producers.watchdog import Watchdog
from schemas.experiment import EnvSpec
from tests.counters.counting import bytecodes, calls, peak_bytes
from tests.counters.expectations import Counters
from tests.counters.hot_paths import (
    WARM_UP,
    Learner,
    Processor,
    Shape,
    Worker,
    actor_of,
    batches,
    records,
    working,
)

USUAL, TINY = Shape(256, 32), Shape(16, 8)
FRAMES = Shape(8, 32, is_frames=True)
_ROUNDS = 2
_TAILS_WARM_UP = 4


def bytes_of(shape: Shape) -> Counters:
    """Return what a row takes on the wire, as an unroll and in a batch."""
    with working(shape) as worker:
        return _sizes(worker, shape)


def bytes_of_cart_pole() -> Counters:
    """Return the same of the environment that throughput is told of."""
    watchdog = Watchdog(600.0)
    environments = make_environments(
        EnvSpec(id="CartPole-v1"), USUAL.num_envs, Settings(), watchdog
    )
    try:
        worker = Worker(environments, actor_of(USUAL), USUAL.num_steps)
        return _sizes(worker, USUAL)
    finally:
        environments.close()
        watchdog.close()


def _sizes(worker: Worker, shape: Shape) -> Counters:
    """Return those of one unroll; its batch comes with the next one."""
    processor, unrolls = Processor(), worker.parts()
    made = [b for u in (*unrolls, *worker.parts()) for b in processor.take(u)]
    made = made[: len(unrolls)]
    return {
        "unroll bytes per step": round(sum(map(len, unrolls)) / shape.rows, 3),
        "batch bytes per step": round(sum(map(len, made)) / shape.rows, 3),
        "records per 1,000 steps": round(1000 * 2 * len(unrolls) / shape.rows, 4),
    }


def work_of_worker(shape: Shape) -> Counters:
    """Return what a worker does for one unroll: act, step, judge; encode."""
    with working(shape) as worker:
        stages = {"collect": lambda _: worker.collect(), "encode": worker.encode}
        return _work(stages, repeat(None), shape)


def work_of_processor(shape: Shape) -> Counters:
    """Return what a processor does for one unroll: decode; compute, encode."""
    processor = Processor()
    unrolls = iter(records(shape, _TAILS_WARM_UP + 3 * _ROUNDS))
    for unroll in islice(unrolls, _TAILS_WARM_UP):
        processor.take(unroll)
    stages = {"decode": processor.decode, "compute": processor.compute}
    return _work(stages, unrolls, shape)


def work_of_learner(shape: Shape) -> Counters:
    """Return what a learner does for one batch: decode; judge, insert, sample."""
    learner = Learner(shape)
    found = iter(batches(shape, WARM_UP + 3 * _ROUNDS))
    for batch in islice(found, WARM_UP):
        learner.take(batch)
    stages = {"decode": learner.decode, "learn": learner.learn}
    return _work(stages, found, shape)


def _work(
    stages: Mapping[str, Callable[[Any], Any]], inputs: Iterator[Any], shape: Shape
) -> Counters:
    """Return the least of some rounds: a cache may have been empty in the first.

    Args:
        stages: by name; each takes what the one before it gave, the first an input.
        inputs: three for each round.
        shape: of an unroll.
    """

    def whole() -> None:
        value = next(inputs)
        for stage in stages.values():
            value = stage(value)

    peaks = [_peaks(stages, next(inputs)) for _ in range(_ROUNDS)]
    return {
        "bytecodes per unroll": min(bytecodes(whole) for _ in range(_ROUNDS)),
        "calls per unroll": min(calls(whole) for _ in range(_ROUNDS)),
        **{
            f"peak bytes per step, {name}": round(
                min(each[name] for each in peaks) / shape.rows, 2
            )
            for name in stages
        },
    }


def _peaks(stages: Mapping[str, Callable[[Any], Any]], value: Any) -> dict[str, int]:
    """Return what each stage needs besides what it was given, in bytes."""
    found = {}
    for name, stage in stages.items():
        made: list[Any] = []
        found[name] = peak_bytes(partial(_keep, made, stage, value))
        (value,) = made
    return found


def _keep(made: list[Any], stage: Callable[[Any], Any], value: Any) -> None:
    made.append(stage(value))


GROUPS: dict[str, Callable[[], Counters]] = {
    "bytes, CartPole 256 x 32": bytes_of_cart_pole,
    "bytes, four numbers 16 x 8": lambda: bytes_of(TINY),
    "bytes, pictures 8 x 32": lambda: bytes_of(FRAMES),
    "work, worker 256 x 32": lambda: work_of_worker(USUAL),
    "work, processor 256 x 32": lambda: work_of_processor(USUAL),
    "work, learner 256 x 32": lambda: work_of_learner(USUAL),
    "work, worker, pictures 8 x 32": lambda: work_of_worker(FRAMES),
    "work, processor, pictures 8 x 32": lambda: work_of_processor(FRAMES),
    "work, learner, pictures 8 x 32": lambda: work_of_learner(FRAMES),
}
