"""A deterministic learner that is killed ends where an undisturbed one ends: exactly.

Parameters, moments of the optimiser, random generators, priorities, what is in the
buffer and where the log is read on: whenever it was killed, a checkpoint half written.
"""

import contextlib
import json
import secrets
import signal

import pytest

from learner.algorithms import ALGORITHMS
from learner.snapshot import STATE, TENSORS
from schemas.codec import encode
from tests.integration.exact_rig import PRELUDE, changes, env_of, experiment
from tests.integration.learner_host import LearnerHost
from tests.integration.learner_rig import Rig, make_batch

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.slow]

RECORDS = 250
SAVE_EVERY, LAST = 20, 100
KILLS = [
    # Between two updates, some behind the checkpoint.
    "die_at_call(Learner, '_update', 25)",
    # In the middle of the file of the checkpoint that is written next.
    "die_at_call(checkpoint, 'write_durably', 3, half)",
    # When its files are there and its name is not.
    "die_at_call(checkpoint.os, 'rename', 1)",
    # When it is durable, and its offsets are not committed.
    "die_at_call(Feed, 'commit', 1)",
]
"""In one process after the other; each goes on where the one before was killed."""

# Which run and log it is; versions of policies and counters: those go on over restarts.
_OF_THE_RUN = {"run_id", "log", "trained_on", "next_version", "counters", "clock"}


@pytest.fixture(scope="module")
def hosts(settings):
    """Two: what must be the same comes of interpreters with other hashes, addresses."""
    with contextlib.ExitStack() as made:
        yield [made.enter_context(contextlib.closing(LearnerHost())) for _ in range(2)]


@pytest.fixture
def rigs(settings):
    """Make rigs; what they started is ended."""
    with contextlib.ExitStack() as made:
        yield lambda algorithm: made.enter_context(
            contextlib.closing(recorded(settings, algorithm))
        )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_killed_and_undisturbed_learners_end_the_same(algorithm, rigs, hosts, tmp_path):
    undisturbed, killed = rigs(algorithm), rigs(algorithm)
    one, other, nowhere = (tmp_path / name for name in ("one", "other", "nowhere"))
    calm, deadly = hosts
    calm.start(undisturbed, prelude(one, save_every=0))  # and meanwhile:
    for kill in KILLS:
        deadly.start(killed, prelude(nowhere, save_every=SAVE_EVERY, kill=kill))
        assert deadly.wait() == -signal.SIGKILL
        assert not list(nowhere.iterdir()), f"{kill}: it came to its end"
    deadly.start(killed, prelude(other, save_every=SAVE_EVERY))
    assert deadly.wait() == -signal.SIGKILL
    assert calm.wait() == -signal.SIGKILL
    assert_same(one, other)


def recorded(settings, algorithm):
    """A rig whose log holds all that a worker will ever have sent."""
    rig = Rig(settings, experiment(f"exact-{secrets.token_hex(4)}", algorithm))
    incarnation = rig.start_worker(env=env_of(algorithm))
    for sequence in range(RECORDS):
        batch = make_batch(
            rig.name, rig.run_id, "w0", incarnation, sequence,
            **changes(algorithm, sequence),
        )  # fmt: skip
        rig.send_bytes(encode(batch))
    rig.flush()
    return rig


def prelude(dump, *, save_every, kill=""):
    """Return what runs in a learner first: when it saves, and when it dies."""
    dump.mkdir(exist_ok=True)
    settings = f"SAVE_EVERY, LAST, DUMP = {save_every}, {LAST}, {str(dump)!r}"
    return f"{settings}\n{PRELUDE}\n{kill}"


def assert_same(one, other):
    names = {path.name for path in one.iterdir()}
    assert names == {path.name for path in other.iterdir()} >= {TENSORS, STATE}
    state, again = (json.loads((d / STATE).read_text()) for d in (one, other))
    assert state["algorithm"]["updates"] >= LAST
    assert of_any_run(state) == of_any_run(again)
    for name in names - {STATE}:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def of_any_run(value):
    """What must be the same in every run, wherever it stands in a state."""
    if isinstance(value, dict):
        kept = value.keys() - _OF_THE_RUN
        return {key: of_any_run(value[key]) for key in kept}
    return [of_any_run(v) for v in value] if isinstance(value, list) else value
