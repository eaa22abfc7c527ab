"""A Minari dataset of this machine, opened without trusting what is in it.

Its own words may not lead out of its folder, nor import, make or unpickle anything:
spaces come from its metadata, never from an environment that it names; what it says of
its environment is taken as an id and arguments, to be judged like an experiment's.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from minari.dataset.minari_storage import MinariStorage

from archive.minari_ids import DATA, DatasetError, dataset_folder
from archive.spaces import NoSuchSpace, unnest
from schemas.records import SpaceField
from schemas.tensors import Array

FORMATS = ("arrow", "hdf5", "parquet")
MAX_METADATA_BYTES = 64 << 20

_CHUNK_BYTES = 1 << 20
_HDF5_DEPTH = 64

Describe = Callable[[Any], tuple[SpaceField, ...]]
"""A Gymnasium space -> its leaves, as workers describe them."""
Tell = Callable[[int, int], None]
"""How many bytes are done, and of how many."""


@dataclass(frozen=True)
class DatasetEpisode:
    """One episode, L >= 1 steps; observations have L+1 rows."""

    observations: dict[str, Array]
    actions: dict[str, Array]
    rewards: Array
    terminations: Array
    truncations: Array


class MinariDataset:
    """Episodes that can be read one by one.

    Attributes:
        dataset_id: what it is called.
        sha256: of all its files, with their names.
        observation: the leaves of its space.
        action: likewise.
        lengths: [N] steps of each episode.
        env: what it says of its environment: id, kwargs and wrappers, as the values of
            `spec.env`; None: nothing.
        max_episode_steps: likewise.
        written_at_ms: when its metadata were.
    """

    def __init__(
        self,
        root: Path,
        dataset_id: str,
        describe: Describe,
        tell: Tell = lambda done, of: None,
    ) -> None:
        """Open it.

        Raises:
            DatasetError: there is none, or it is not what a dataset has to be.
            RollstreamError: its spaces cannot travel.
        """
        self.dataset_id = dataset_id
        self._path = dataset_folder(root, dataset_id) / DATA
        if not self._path.is_dir():
            raise DatasetError(
                f"dataset {dataset_id}: expected it in {self._path.parent}, found none",
                f"`minari download {dataset_id}`, or let MINARI_DATASETS_PATH name the "
                "folder of datasets",
            )
        try:
            self.sha256 = _hash(self._path, tell)
            metadata = _metadata(self._path)
            if metadata["data_format"] == "hdf5":
                _check_hdf5(self._path)
            self._storage = MinariStorage.read(self._path)
            self.lengths = self._lengths()
        except DatasetError as exc:
            raise DatasetError(
                f"dataset {dataset_id}: {exc.problem}", exc.mend
            ) from exc
        except Exception as exc:  # whatever its readers run into
            raise self._damaged(repr(exc)) from exc
        self.observation = describe(self._storage.observation_space)
        self.action = describe(self._storage.action_space)
        self.env, self.max_episode_steps = _env(metadata.get("env_spec"))
        self.minari_version = str(metadata.get("minari_version", ""))[:40]
        metadata_file = self._path / "metadata.json"
        self.written_at_ms = metadata_file.stat().st_mtime_ns // 1_000_000

    def read(self, number: int) -> DatasetEpisode:
        """Return an episode.

        Raises:
            DatasetError: it is damaged, or is not of the dataset's spaces.
        """
        length = int(self.lengths[number])
        try:
            found = next(iter(self._storage.get_episodes([number])))
            observations = unnest(found["observations"], self.observation, length + 1)
            actions = unnest(found["actions"], self.action, length)
            columns = [
                np.asarray(found[name])
                for name in ("rewards", "terminations", "truncations")
            ]
        except NoSuchSpace as exc:
            raise self._damaged(f"episode {number}: {exc.problem}") from exc
        except Exception as exc:
            raise self._damaged(f"episode {number}: {exc!r}") from exc
        rewards, *flags = columns
        shapes = [column.shape for column in columns]
        if shapes != [(length,)] * 3 or rewards.dtype.kind not in "fiub":
            raise self._damaged(
                f"episode {number}: expected {length} rewards, terminations and "
                f"truncations, found {[list(shape) for shape in shapes]}"
            )
        terminations, truncations = (flag.astype(np.bool_) for flag in flags)
        early = np.flatnonzero((terminations | truncations)[:-1])
        if len(early):
            raise self._damaged(
                f"episode {number}: expected its end in its last step, found one in "
                f"step {early[0]} of {length}"
            )
        if rewards.dtype not in (np.float32, np.float64):
            rewards = rewards.astype(np.float64)
        return DatasetEpisode(observations, actions, rewards, terminations, truncations)

    def _lengths(self) -> Array:
        count = self._storage.total_episodes
        found = self._storage.get_episode_metadata(range(count))
        lengths = np.array([int(each["total_steps"]) for each in found], np.int64)
        if lengths.min(initial=0) < 0:
            raise ValueError(f"total_steps: expected 0 or more, found {lengths.min()}")
        return lengths

    def _damaged(self, problem: str) -> DatasetError:
        return DatasetError(
            f"dataset {self.dataset_id} cannot be read: {problem}",
            "see whether `minari.load_dataset` reads it; else download it again",
        )


def _hash(root: Path, tell: Tell) -> str:
    """Return the hash of all files below ``root``, which may hold nothing else."""
    files = sorted(_files(root), key=lambda path: path.relative_to(root).as_posix())
    total = sum(path.stat().st_size for path in files)
    whole, done = hashlib.sha256(), 0
    for path in files:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                digest.update(data)
                done += len(data)
                tell(done, total)
        name = path.relative_to(root).as_posix()
        whole.update(f"{digest.hexdigest()}  {name}\n".encode())
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        kind = path.lstat().st_mode
        if stat.S_ISDIR(kind):
            yield from _files(path)
        elif stat.S_ISREG(kind):
            yield path
        else:
            raise DatasetError(
                f"expected files and folders only, found that {path} is none",
                "copy what it points to in its place",
            )


def _metadata(path: Path) -> dict[str, Any]:
    file = path / "metadata.json"
    size = file.stat().st_size
    if size > MAX_METADATA_BYTES:
        raise DatasetError(
            f"metadata.json: expected at most {MAX_METADATA_BYTES} bytes, found {size}"
        )
    metadata = json.loads(file.read_bytes())
    if not isinstance(metadata, dict):
        raise DatasetError(f"metadata.json: expected an object, found {type(metadata)}")
    for name in ("observation_space", "action_space"):
        # Without them Minari makes the environment that the dataset names.
        if not isinstance(metadata.get(name), str):
            raise DatasetError(
                f"metadata.json: expected {name}, found none: nothing is made or "
                "imported because a dataset says so",
                "write the dataset anew with its spaces",
            )
    if metadata.get("data_format") not in FORMATS:
        raise DatasetError(
            f"metadata.json: expected the data_format {', '.join(FORMATS)}, found "
            f"{str(metadata.get('data_format'))[:40]!r}"
        )
    return metadata


def _env(text: Any) -> tuple[dict[str, Any] | None, int | None]:
    """Return what a dataset says of its environment; nothing of it is made here."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        return None, None
    wrappers = found.get("additional_wrappers") or []
    values = {
        "id": found["id"],
        "kwargs": found.get("kwargs") or {},
        "wrappers": [
            {"name": each.get("name"), "kwargs": each.get("kwargs") or {}}
            for each in (wrappers if isinstance(wrappers, Sequence) else ())
            if isinstance(each, dict)
        ],
    }
    limit = found.get("max_episode_steps")
    return values, limit if type(limit) is int and 0 < limit < 2**31 else None


def _check_hdf5(path: Path) -> None:
    """Raise DatasetError for a file of which a part lies in another one."""
    try:
        import h5py
    except ImportError as exc:
        raise DatasetError(
            "it is an HDF5 file, which takes h5py to read", "`pip install h5py`"
        ) from exc
    with h5py.File(path / "main_data.hdf5", "r") as file:
        groups, seen = [(file, 0)], set()
        while groups:
            group, depth = groups.pop()
            for name in group:
                is_here = isinstance(group.get(name, getlink=True), h5py.HardLink)
                found = group[name] if is_here else None
                if isinstance(found, h5py.Group):
                    # Each once: two names for one, many times over, would never end.
                    address = h5py.h5o.get_info(found.id).addr
                    if address in seen:
                        continue
                    seen.add(address)
                if isinstance(found, h5py.Group) and depth < _HDF5_DEPTH:
                    groups.append((found, depth + 1))
                elif (
                    not isinstance(found, h5py.Dataset)
                    or found.is_virtual
                    or found.external
                ):
                    raise DatasetError(
                        f"expected all data within the file, found that {name[:80]!r} "
                        "leads out of it"
                    )
