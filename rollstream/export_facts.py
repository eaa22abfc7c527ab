"""What a dataset says beside its episodes: seeds, environment, origin."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archive.episodes import Episode
    from archive.recorded import SourceInfo
    from archive.selection import Selection
    from infra.settings import Settings


def seeds_of(info: SourceInfo) -> Callable[[Episode], int | None]:
    """Return what tells the seed that an episode's environment was reset with.

    None where nobody knows: a vector entry point resets itself, and what was replayed,
    into an experiment without workers, has its seeds from another one.
    """
    from producers.seeding import StreamSeeds
    from schemas.topics import worker_index

    spec, env = info.experiment.spec, info.env
    is_known = (
        env is not None
        and env.vectorization in ("sync", "async")
        and spec.workers.most_replicas > 0
    )

    def seed(episode: Episode) -> int | None:
        if not is_known:
            return None
        worker = worker_index(episode.worker)
        seeds = StreamSeeds(spec.seed, worker, episode.incarnation)
        return seeds.episode(episode.env, episode.number)

    return seed


def recoverable(settings: Settings, info: SourceInfo) -> Any:
    """Return what makes the environment again; None: this machine does not know it."""
    from archive.minari_export import env_to_recover
    from producers.env_recipe import EnvRecipe, EnvRefused

    spec = info.experiment.spec.env
    with suppress(EnvRefused):
        return env_to_recover(EnvRecipe.of(spec, settings).registered(), spec)
    return None


def facts_of(info: SourceInfo, selection: Selection) -> dict[str, Any]:
    """Return what a dataset says of itself, beside what Minari says."""
    return {
        "algorithm_name": info.experiment.spec.learner.algorithm,
        "description": f"What the workers of {info.identity} did, as rollstream kept "
        "it in a log.",
        "rollstream": {
            "source": info.identity,
            "selection": json.loads(selection.to_json()),
            "experiment": json.loads(info.experiment.to_json()),
        },
    }
