"""Episodes -> a dataset that `minari.load_dataset` opens.

Nothing in it is pickled: Arrow files of numbers, and JSON. Images are kept as they are,
not as JPEG, which would change them.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import minari
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.envs.registration import WrapperSpec
from minari.data_collector.episode_buffer import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from archive.episodes import Episode
from archive.minari_ids import DATA, DatasetError
from archive.spaces import AnySpace, nest, rebuild
from schemas.experiment import EnvSpec
from schemas.records import EnvDescription

FORMAT = "arrow"
MAX_STEPS = 32_766
"""Arrow writes no more rows at once, observations being one more than steps, and Minari
reads an episode's first piece only."""

_AT_ONCE = 256

Seed = Callable[[Episode], int | None]
"""An episode -> what its environment was reset with; None: not known."""


def env_to_recover(registered: RegisteredEnv, spec: EnvSpec) -> RegisteredEnv:
    """Return what Gymnasium registered, with an experiment's arguments and wrappers."""
    found = copy.deepcopy(registered)
    found.kwargs = {**found.kwargs, **spec.kwargs}
    found.additional_wrappers = tuple(
        WrapperSpec(w.name, f"gymnasium.wrappers:{w.name}", dict(w.kwargs))
        for w in spec.wrappers
    )
    return found


def check_exportable(env: EnvDescription) -> None:
    """Raise DatasetError, or NoSuchSpace, when Minari cannot hold what was seen."""
    for field in (*env.observation, *env.action):
        if 0 in field.shape or field.dtype.startswith("<c"):
            raise DatasetError(
                f"{field.name or 'space'}: expected real numbers, and at least one of "
                f"them, found {field.dtype}{list(field.shape)}: Minari has no such",
                "`--format parquet` takes all that travels",
            )
    rebuild(env.observation), rebuild(env.action)


def export_minari(
    folder: Path,
    dataset_id: str,
    episodes: Iterable[Episode],
    env: EnvDescription,
    *,
    recover: RegisteredEnv | None,
    seed: Seed,
    facts: dict[str, Any],
) -> None:
    """Write a dataset; it is there whole, or not at all.

    An episode of more than ``MAX_STEPS`` steps becomes several, truncated where they
    are cut.

    Args:
        folder: of the dataset; see `archive.minari_ids`.
        dataset_id: what it is called.
        episodes: what is in it.
        env: the spaces.
        recover: what `recover_environment` makes; None: nothing.
        seed: of an episode.
        facts: more metadata; JSON values.

    Raises:
        DatasetError: there is such a dataset, or the disk refuses it.
    """
    check_exportable(env)
    if folder.exists():
        raise DatasetError(
            f"dataset {dataset_id}: expected none of this id, found {folder}",
            "choose another version with --dataset-id, or remove it with "
            f"`minari delete {dataset_id}`",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
        try:
            storage = _new(unfinished / DATA, env, recover)
            storage.update_metadata(
                {
                    "dataset_id": dataset_id,
                    "minari_version": minari.__version__,
                    "requirements": [f"{n}=={v}" for n, v in env.versions.items()],
                    **facts,
                }
            )
            _write(storage, episodes, env, seed)
            unfinished.chmod(0o755)
            os.rename(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as exc:
        raise DatasetError(
            f"dataset {dataset_id} cannot be written to {folder}: "
            f"{exc.strerror or exc}",
            "free space there, or choose another place with --out",
        ) from exc


def _new(
    path: Path, env: EnvDescription, recover: RegisteredEnv | None
) -> MinariStorage:
    return MinariStorage.new(
        path,
        observation_space=rebuild(env.observation),
        action_space=rebuild(env.action),
        env_spec=recover,
        data_format=FORMAT,
        jpeg_encoding=False,
    )


def _write(
    storage: MinariStorage, episodes: Iterable[Episode], env: EnvDescription, seed: Seed
) -> None:
    size = storage.get_size
    # It walks through all files, and is asked for again after each episode.
    storage.get_size = lambda: 0.0
    parts, first = _parts(episodes), 0
    observation, action = storage.observation_space, storage.action_space
    while batch := list(islice(parts, _AT_ONCE)):
        storage.update_episodes(
            _buffer(part, observation, action, None if start else seed(part))
            for start, part in batch
        )
        storage.update_episode_metadata(
            (_origin(start, part) for start, part in batch),
            range(first, first + len(batch)),
        )
        first += len(batch)
    storage.get_size = size
    storage.update_metadata({"dataset_size": storage.get_size()})


def _parts(episodes: Iterable[Episode]) -> Iterator[tuple[int, Episode]]:
    """Yield what of each episode goes into one of the dataset, and its first step."""
    for episode in episodes:
        for start in range(0, len(episode), MAX_STEPS):
            yield start, _part(episode, start, min(start + MAX_STEPS, len(episode)))


def _part(episode: Episode, start: int, stop: int) -> Episode:
    if stop - start == len(episode):
        return episode
    truncations = episode.truncations[start:stop].copy()
    truncations[-1] |= stop < len(episode)
    return replace(
        episode,
        observations={n: o[start : stop + 1] for n, o in episode.observations.items()},
        actions={n: a[start:stop] for n, a in episode.actions.items()},
        rewards=episode.rewards[start:stop],
        terminations=episode.terminations[start:stop],
        truncations=truncations,
    )


def _buffer(
    episode: Episode, observation: AnySpace, action: AnySpace, seed: int | None
) -> EpisodeBuffer:
    return EpisodeBuffer(
        seed=seed,
        observations=nest(observation, episode.observations),
        actions=nest(action, episode.actions),
        rewards=episode.rewards,
        terminations=episode.terminations,
        truncations=episode.truncations,
    )


def _origin(start: int, episode: Episode) -> dict[str, Any]:
    first, last = episode.first_policy, episode.last_policy
    return {
        "rollstream": {
            "worker": episode.worker,
            "incarnation": episode.incarnation,
            "env": episode.env,
            "episode": episode.number,
            "first_step": start,
            "first_policy": [first.epoch, first.version],
            "last_policy": [last.epoch, last.version],
            "produced_at_ms": episode.produced_at_ms,
            "failed": episode.failed,
        }
    }
