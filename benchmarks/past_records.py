"""Unrolls to archive and replay: CartPole's own, and frames as an Atari game shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from infra.settings import Settings
from producers.acting import RandomActor
from producers.environments import describe_environments, make_environments
from producers.packing import Packing
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.unrolls import to_record
from producers.watchdog import Watchdog
from schemas.experiment import EnvSpec
from schemas.records import EnvDescription, PolicyRef, SpaceField, Unroll
from schemas.tensors import Array, pack
from schemas.topics import worker_name

STEPS = 32
CARTPOLE_ENVS, ATARI_ENVS = 256, 8
WORKERS = 2
POLICY = PolicyRef(0, 7)
_SIDE, _BALL, _PADDLE = 84, 3, 12

ATARI = EnvDescription(
    "bench/Frames-v0",
    (
        SpaceField(
            "",
            "box",
            "|u1",
            (_SIDE, _SIDE),
            pack(np.zeros((_SIDE, _SIDE), np.uint8)),
            pack(np.full((_SIDE, _SIDE), 255, np.uint8)),
        ),
    ),
    (SpaceField("", "discrete", "<i8", (), n=(6,), start=(0,)),),
    None,
    "sync",
    {},
)


def template(name: str, run_id: str, worker: int) -> Unroll:
    """Return an unroll without arrays, of a stream's beginning."""
    nothing = pack(np.zeros((0, 0)))
    return Unroll(
        experiment=name,
        run_id=run_id,
        worker=worker_name(worker),
        incarnation=worker,
        sequence=0,
        first_step=0,
        num_steps=STEPS,
        num_envs=1,
        policy=POLICY,
        produced_at_ms=0,
        end_of_stream=False,
        observations={},
        actions={},
        rewards=nothing,
        terminated=nothing,
        truncated=nothing,
        valid=nothing,
        episodes=nothing,
        states={},
        behaviour={},
        infos={},
    )


def cartpole(settings: Settings, first: Unroll, rows: int) -> Iterator[Unroll]:
    """Yield what a worker would send, with values of a network in ``behaviour``."""
    spec = EnvSpec(id="CartPole-v1")
    environments = make_environments(
        spec, CARTPOLE_ENVS, settings, Watchdog(spec.step_timeout_s)
    )
    rng = np.random.default_rng(first.incarnation)
    packing = Packing()
    try:
        rollout = Rollout(environments, StreamSeeds(1, first.incarnation, 0))
        actor = RandomActor(
            describe_environments(spec, environments, settings).action, CARTPOLE_ENVS
        )
        for sequence in range(_count(rows, CARTPOLE_ENVS)):
            record = to_record(
                rollout.collect(actor, STEPS), _at(first, sequence), packing
            )
            q_max = rng.normal(size=(STEPS + 1, CARTPOLE_ENVS)).astype("<f4")
            behaviour = {"q_max": pack(q_max), "q_taken": pack(q_max[:-1] * 0.9)}
            yield replace(record, policy=POLICY, behaviour=behaviour)
    finally:
        environments.close()


def cartpole_description(settings: Settings) -> EnvDescription:
    """Return what a worker finds."""
    spec = EnvSpec(id="CartPole-v1")
    environments = make_environments(spec, 1, settings, Watchdog(spec.step_timeout_s))
    try:
        return describe_environments(spec, environments, settings)
    finally:
        environments.close()


def atari(settings: Settings, first: Unroll, rows: int) -> Iterator[Unroll]:
    """Yield consecutive frames: bricks that stand still, and what moves below them."""
    rng = np.random.default_rng(first.incarnation)
    background = np.full((ATARI_ENVS, _SIDE, _SIDE), 20, np.uint8)
    bricks = rng.integers(1, 5, (ATARI_ENVS, 6, 14), np.uint8) * 40
    background[:, 16:34] = bricks.repeat(3, 1).repeat(6, 2)
    shape = (STEPS, ATARI_ENVS)
    q_max = rng.normal(size=(STEPS + 1, ATARI_ENVS)).astype("<f4")
    flags = pack(np.zeros(shape, np.bool_))
    for sequence in range(_count(rows, ATARI_ENVS)):
        frames = _frames(background, sequence * STEPS)
        # Now and then one is hit.
        env, row, column = rng.integers(0, [ATARI_ENVS, 6, 14])
        top, left = 16 + 3 * row, 6 * column
        background[env, top : top + 3, left : left + 6] = 20
        yield replace(
            _at(first, sequence),
            num_envs=ATARI_ENVS,
            observations={"": pack(frames, "ZSTD")},
            actions={"": pack(rng.integers(0, 6, shape))},
            rewards=pack((rng.random(shape) < 0.02).astype("<f8")),
            terminated=flags,
            truncated=flags,
            valid=pack(np.ones(shape, np.bool_)),
            episodes=pack(np.zeros(ATARI_ENVS, "<i8")),
            behaviour={"q_max": pack(q_max), "q_taken": pack(q_max[:-1] * 0.9)},
        )


def _frames(background: Array, first_step: int) -> Array:
    frames = np.repeat(background[None], STEPS + 1, 0)
    for t in range(STEPS + 1):
        for env in range(ATARI_ENVS):
            at = first_step + t + 17 * env
            y, x = at * 2 % (_SIDE - _BALL), at * 3 % (_SIDE - _BALL)
            frames[t, env, y : y + _BALL, x : x + _BALL] = 255
            left = at % (_SIDE - _PADDLE)
            frames[t, env, -4:-2, left : left + _PADDLE] = 200
    return frames


def _at(first: Unroll, sequence: int) -> Unroll:
    return replace(
        first,
        sequence=sequence,
        first_step=sequence * STEPS,
        produced_at_ms=1_700_000_000_000 + 10 * sequence,
    )


def _count(rows: int, envs: int) -> int:
    return -(-rows // (WORKERS * STEPS * envs))
