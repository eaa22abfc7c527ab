"""(experiment seed, worker, incarnation, env, episode) -> seeds that never overlap.

Each is hashed by numpy's SeedSequence into 63 bits; neighbours share nothing, which
``seed + j`` of a vector environment would.
"""

from dataclasses import dataclass

import numpy as np

_ENVIRONMENT, _VECTOR, _EXPLORATION, _EVALUATION, _PLAY = range(5)


def _sequence(seed: int, purpose: int, *words: int) -> np.random.SeedSequence:
    # Two 32-bit words each: a single large number would take as many words as two
    # small ones, and be mistaken for them.
    halves = [half for word in words for half in (word >> 32, word & 0xFFFFFFFF)]
    return np.random.SeedSequence(seed, spawn_key=(purpose, *halves))


def _number(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


@dataclass(frozen=True, slots=True)
class StreamSeeds:
    """The seeds of one incarnation of a worker: of one stream.

    Attributes:
        seed: the experiment's.
        worker: its index.
        incarnation: at least 0.
    """

    seed: int
    worker: int
    incarnation: int

    def episode(self, env: int, episode: int) -> int:
        """Return the seed that environment ``env`` is reset with for an episode.

        So any episode of a record can be played again alone. (Vector entry points
        reset themselves without a seed: there only the whole stream can.)
        """
        who = (self.worker, self.incarnation, env, episode)
        return _number(_sequence(self.seed, _ENVIRONMENT, *who))

    def vector(self, restart: int = 0) -> int:
        """Return the seed of a vector entry point, for its n-th restart."""
        who = (self.worker, self.incarnation, restart)
        return _number(_sequence(self.seed, _VECTOR, *who))

    def action_rng(self) -> np.random.Generator:
        """Return what all actions at random are drawn with."""
        who = (self.worker, self.incarnation)
        return np.random.default_rng(_sequence(self.seed, _EXPLORATION, *who))


def evaluation_seeds(seed: int, epoch: int, version: int, round_: int) -> StreamSeeds:
    """Return the seeds of an evaluation round of a policy version.

    No worker, version or round shares them.
    """
    who = (epoch + 1, version + 1, round_)
    return StreamSeeds(_number(_sequence(seed, _EVALUATION, *who)), 0, 0)


def play_seeds(seed: int) -> StreamSeeds:
    """Return the seeds of episodes that a person looks at: the same for any policy.

    No worker and no evaluation shares them.
    """
    return StreamSeeds(_number(_sequence(seed, _PLAY)), 0, 0)
