"""Do the parts of an experiment and its environment fit together? Pure."""

from __future__ import annotations

from schemas.actions import action_problem
from schemas.algorithms import BUILT_IN
from schemas.errors import SchemaError
from schemas.experiment import Spec, SpecError
from schemas.images import image_of, image_problems, scaled_inputs
from schemas.records import EnvDescription, SpaceField
from schemas.sizes import field_bytes, longest_unroll, most_steps, stacked

# What is kept of a transition beside observation and action, and of the policy that
# acted: its value, log-probability, and sample.
_ROW_BYTES = 64
# A smaller buffer would hold little but what waits for its bootstrap observation.
_LEAST_UNROLLS = 4
# Reset rows take slots too, and are never sampled.
_MOST_SAMPLABLE = 0.75


def check_fit(spec: Spec, env: EnvDescription, memory_bytes: int | None = None) -> None:
    """Raise SpecError unless the experiment can run with this environment.

    Args:
        spec: the experiment's.
        env: as a worker would describe it, frames unstacked.
        memory_bytes: what this machine has; None: unknown.
    """
    problems = [
        *_actions(spec, env),
        *_images(spec, env),
        *_scale(spec, env),
        *_encodings(spec, env),
        *_unrolls(spec, env),
        *_sequences(spec),
        *_min_size(spec),
        *_goal(spec),
    ]
    if memory_bytes is not None:
        problems += _memory(spec, env, memory_bytes)
    if problems:
        raise SpecError(problems)


def first_unroll_length(spec: Spec, env: EnvDescription) -> int:
    """Return how many steps a worker's unrolls have, at first: fewer may fit a record.

    Raises:
        SchemaError: not even one is sure to fit.
    """
    num_envs = spec.workers.envs_per_worker
    longest_unroll(env.observation, env.action, num_envs)
    most = most_steps(env.observation, env.action, num_envs)
    return min(spec.workers.unroll_length, most)


def buffer_bytes(spec: Spec, env: EnvDescription) -> int:
    """Return about how much memory experience takes, at most."""
    learner = spec.learner
    row = sum(map(field_bytes, (*env.observation, *env.action))) + _ROW_BYTES
    if not learner.traits.is_on_policy:
        return learner.replay.capacity * row + _states_bytes(spec, env)
    # One update's rows are learnt from while the next one's wait, with what is under
    # way of each worker.
    workers = spec.workers
    unroll = workers.unroll_length * workers.envs_per_worker
    waiting = learner.batch_size + workers.most_replicas * unroll
    return (waiting + learner.batch_size * spec.env.frame_stack) * row


def _states_bytes(spec: Spec, env: EnvDescription) -> int:
    """Return the size of the recurrent states that unrolls begin with."""
    if not spec.learner.network.lstm:
        return 0
    try:
        steps = first_unroll_length(spec, env)
    except SchemaError:  # which is told elsewhere
        steps = 1
    states = spec.learner.replay.capacity // steps
    return states * 2 * 4 * spec.learner.network.lstm  # h and c, float32


def _actions(spec: Spec, env: EnvDescription) -> list[str]:
    algorithm = spec.learner.algorithm
    if algorithm not in BUILT_IN:
        return []  # its module knows
    problem = action_problem(env, algorithm, BUILT_IN[algorithm].actions)
    return [f"spec.learner.algorithm: {problem}"] if problem else []


def _seen(spec: Spec, env: EnvDescription) -> list[SpaceField]:
    """Return the fields as a network sees them."""
    return [stacked(field, spec.env.frame_stack) for field in env.observation]


def _images(spec: Spec, env: EnvDescription) -> list[str]:
    encoder = spec.learner.network.image_encoder
    problems = image_problems(_seen(spec, env), encoder)
    return [f"spec.learner.network.imageEncoder: {problem}" for problem in problems]


def _scale(spec: Spec, env: EnvDescription) -> list[str]:
    scale = spec.learner.network.observation_scale
    expected = scaled_inputs(_seen(spec, env))
    if not scale or len(scale) in (1, expected):
        return []
    return [
        f"spec.learner.network.observationScale: expected 1 or {expected} numbers for "
        f"{env.env_id}, one for each input but images, found {len(scale)}"
    ]


def _encodings(spec: Spec, env: EnvDescription) -> list[str]:
    """Refuse fields that there are not, and images that are none."""
    encoding, path = spec.workers.encoding, "spec.workers.encoding.fields"
    known = {field.name: field for field in env.observation}
    problems = [
        f"{path}: expected fields of {env.env_id}, {', '.join(map(repr, known))}, "
        f"found {name!r}"
        for name in encoding.fields
        if name not in known
    ]
    for name, how in encoding.lossy.items():
        if name in known and image_of(known[name]) is None:
            field = known[name]
            problems.append(
                f"{path}: expected an image for {how}, uint8 of at least [height, "
                f"width], found {name!r} {field.kind} {field.dtype} "
                f"{list(field.shape)}"
            )
    return problems


def _unrolls(spec: Spec, env: EnvDescription) -> list[str]:
    """Refuse what a worker would refuse, and what the learner could not keep."""
    try:
        steps = first_unroll_length(spec, env)
    except SchemaError as exc:
        return [f"spec.workers.envsPerWorker: {exc}"]
    learner, num_envs = spec.learner, spec.workers.envs_per_worker
    if learner.traits.is_on_policy:
        return []  # nothing is kept
    what, how, length = "unrolls", "unrollLength x envsPerWorker", steps
    if learner.traits.learns_from == "sequences":  # no shorter than unrolls are
        what, how = "sequences", "(burnIn + sequenceLength) x envsPerWorker"
        length = _length(spec)
    rows = length * num_envs
    least, capacity = _LEAST_UNROLLS * rows, learner.replay.capacity
    if capacity >= least:
        return []
    return [
        f"spec.learner.replay.capacity: expected at least {least:,}, {_LEAST_UNROLLS} "
        f"{what} of {rows:,} rows ({how}), found {capacity:,}"
    ]


def _length(spec: Spec) -> int:
    """Return the rows of a sequence."""
    return spec.learner.r2d2.burn_in + spec.learner.r2d2.sequence_length


def _sequences(spec: Spec) -> list[str]:
    """Refuse sequences that no row can be learnt from, or that leave rows out."""
    if spec.learner.traits.learns_from != "sequences":
        return []
    problems = []
    n_step, learnt = spec.processor.n_step, spec.learner.r2d2.sequence_length
    if n_step > learnt:
        problems.append(
            f"spec.learner.r2d2.sequenceLength: expected at least processor.nStep, "
            f"{n_step}, found {learnt}: targets lie within a sequence"
        )
    unroll, length = spec.workers.unroll_length, _length(spec)
    if unroll > length:
        problems.append(
            f"spec.workers.unrollLength: expected at most {length}, burnIn + "
            f"sequenceLength, found {unroll}: sequences begin where unrolls do, and "
            "rows behind them would never be learnt from"
        )
    return problems


def _min_size(spec: Spec) -> list[str]:
    replay = spec.learner.replay
    most = int(_MOST_SAMPLABLE * replay.capacity)
    if spec.learner.traits.is_on_policy or replay.min_size <= most:
        return []
    return [
        f"spec.learner.replay.minSize: expected at most {most:,}, "
        f"{_MOST_SAMPLABLE:.0%} of capacity, found {replay.min_size:,}: reset rows "
        "take slots too"
    ]


def _goal(spec: Spec) -> list[str]:
    if spec.stop.mean_return is None or spec.evaluator.replicas:
        return []
    return [
        "spec.evaluator.replicas: expected 1 to find out whether stop.meanReturn "
        f"{spec.stop.mean_return:g} is reached, found 0"
    ]


def _memory(spec: Spec, env: EnvDescription, memory_bytes: int) -> list[str]:
    needed = buffer_bytes(spec, env)
    if needed <= memory_bytes:
        return []
    learner = spec.learner
    path, rows = "replay.capacity", learner.replay.capacity
    if learner.traits.is_on_policy:
        path, rows = "batchSize", learner.batch_size
    return [
        f"spec.learner.{path}: expected experience within {memory_bytes:,} bytes of "
        f"memory, found {needed:,} for {rows:,} rows"
    ]
