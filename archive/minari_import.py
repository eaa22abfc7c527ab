"""A Minari dataset -> the unrolls of workers that might have made it.

Each stream is one environment whose episodes follow each other as a worker's do: behind
an end comes the reset row, which is not valid. The same dataset always makes the same
records, whatever offset is begun with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from archive.minari_dataset import DatasetEpisode, MinariDataset
from archive.minari_ids import DATASET_PREFIX
from archive.recorded import Gap, Recorded, SourceInfo
from infra.errors import RollstreamError
from schemas.experiment import Experiment
from schemas.records import NO_POLICY, EnvDescription, SourceRef, Unroll
from schemas.sizes import longest_unroll
from schemas.tensors import Array, Tensor, pack
from schemas.topics import worker_name

SOURCE = "minari"
"""What the experiment is called that a dataset stands for."""

MAX_STREAMS = 8
"""As many workers, so that as many partitions and processors share the work."""

MAX_STEPS = 1024
_PAYS_BELOW = 0.5

Key = tuple[str, str]
"""A field of the record, and the name in it; "" in one that is a tensor."""


class NothingInDataset(RollstreamError):
    """A dataset without a step."""


class MinariSource:
    """A dataset as a past; see `archive.recorded.Source`.

    A stream is a partition; an offset is the number of a record within it.
    """

    def __init__(self, dataset: MinariDataset, experiment: Experiment) -> None:
        """Lay out the records.

        Args:
            dataset: opened.
            experiment: whose spec stands for the dataset's; named ``SOURCE``.

        Raises:
            NothingInDataset: there is no step in it.
            SchemaError: not even one step fits a record.
        """
        full = np.flatnonzero(dataset.lengths)
        if not len(full):
            raise NothingInDataset(
                f"dataset {dataset.dataset_id}: expected an episode with a step, "
                "found none"
            )
        self._dataset = dataset
        self._info = SourceInfo(
            experiment=experiment,
            run_id=dataset.dataset_id,
            topic=DATASET_PREFIX + dataset.dataset_id,
            # Half of it tells all datasets apart, and can be read.
            topic_id=dataset.sha256[:32],
            env=EnvDescription(
                env_id=experiment.spec.env.id,
                observation=dataset.observation,
                action=dataset.action,
                max_episode_steps=dataset.max_episode_steps,
                vectorization="sync",
                versions={"minari": dataset.minari_version},
            ),
        )
        count = min(MAX_STREAMS, len(full))
        self._streams = [
            _Layout(full[index::count], dataset.lengths) for index in range(count)
        ]
        longest = longest_unroll(dataset.observation, dataset.action, 1)
        self._steps = min(MAX_STEPS, longest)

    @property
    def info(self) -> SourceInfo:
        """Whose it is."""
        return self._info

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """Return (0, number of records), by stream."""
        return {
            index: (0, -(-stream.num_rows // self._steps))
            for index, stream in enumerate(self._streams)
        }

    def gaps(self) -> list[Gap]:
        """Return nothing: a dataset is whole."""
        return []

    def read(self, partition: int, first: int, end: int) -> Iterator[Recorded]:
        """Yield records first <= offset < end of a stream.

        Raises:
            DatasetError: an episode is damaged: says which.
        """
        stream = self._streams[partition]
        # A record ends within the episode that the next begins with.
        block = lru_cache(maxsize=2)(lambda number: _block(self._dataset.read(number)))
        begin, stop = self.bounds()[partition]
        for offset in range(max(first, begin), min(end, stop)):
            start = offset * self._steps
            rows = range(start, min(start + self._steps, stream.num_rows))
            parts = [
                {key: column[part] for key, column in block(number).items()}
                for number, part in stream.parts(rows.start, rows.stop + 1)
            ]
            at_ms = self._dataset.written_at_ms + offset
            record = self._unroll(partition, offset, rows, _Columns(parts, rows), at_ms)
            address = SourceRef(self._info.topic, partition, offset)
            yield Recorded(address, at_ms, record)

    def close(self) -> None:
        """Let go of it."""

    def _unroll(
        self, partition: int, offset: int, rows: range, found: _Columns, at_ms: int
    ) -> Unroll:
        stream = self._streams[partition]
        return Unroll(
            experiment=self._info.experiment.name,
            run_id=self._info.run_id,
            worker=worker_name(partition),
            incarnation=0,
            sequence=offset,
            first_step=rows.start,
            num_steps=len(rows),
            num_envs=1,
            policy=NO_POLICY,
            produced_at_ms=at_ms,
            end_of_stream=rows.stop == stream.num_rows,
            observations=dict(found.group("observations", 1)),
            actions=dict(found.group("actions")),
            rewards=found.one("rewards"),
            terminated=found.one("terminated"),
            truncated=found.one("truncated"),
            valid=found.one("valid"),
            episodes=pack(np.array([stream.episode_at(rows.start)], "<i8")),
            states={},
            behaviour={},
            infos={},
        )


class _Layout:
    """Where in a stream its episodes lie: each takes a row a step, and one to reset.

    After the last one there is nothing to reset for.
    """

    def __init__(self, numbers: Array, lengths: Array) -> None:
        self._numbers = numbers
        self._ends = np.cumsum(lengths[numbers] + 1)
        self.num_rows = int(self._ends[-1]) - 1

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, slice]]:
        """Yield which rows of which episodes rows [start, stop) are."""
        first, last = np.searchsorted(self._ends, [start, stop - 1], "right")
        for index in range(first, last + 1):
            begin = int(self._ends[index - 1]) if index else 0
            end = min(stop, int(self._ends[index]))
            yield (
                int(self._numbers[index]),
                slice(max(start, begin) - begin, end - begin),
            )

    def episode_at(self, row: int) -> int:
        """Return the number, within the stream, of the episode that a row belongs to.

        The reset row is the first of the next.
        """
        return int(np.searchsorted(self._ends - 1, row, "right"))


class _Columns:
    """Rows of episodes that follow each other, and the one after them; by name."""

    def __init__(self, parts: list[dict[Key, Array]], rows: range) -> None:
        self._parts = parts
        self._num_steps = len(rows)

    def group(self, group: str, more: int = 0) -> Iterator[tuple[str, Tensor]]:
        """Yield each tensor [T + more, 1, ...] of a field of the record, by name."""
        for key in self._parts[0]:
            if key[0] == group:
                column = np.concatenate([part[key] for part in self._parts])
                array = column[: self._num_steps + more, None]
                yield key[1], _packed(array) if more else pack(array)

    def one(self, group: str) -> Tensor:
        """Return the tensor [T, 1] of a field that is one."""
        return next(tensor for _, tensor in self.group(group))


def _block(episode: DatasetEpisode) -> dict[Key, Array]:
    """Return an episode's rows [L + 1, ...]; the last is the reset row.

    An end that the dataset has not told of is a truncation: nobody acted any more.
    """
    terminated, truncated = episode.terminations, episode.truncations.copy()
    truncated[-1] |= ~terminated[-1]
    return {
        **{("observations", n): array for n, array in episode.observations.items()},
        # Some action there has to be, and not every space has a zero.
        **{
            ("actions", n): np.concatenate([array, array[-1:]])
            for n, array in episode.actions.items()
        },
        ("rewards", ""): np.append(episode.rewards, episode.rewards.dtype.type(0)),
        ("terminated", ""): np.append(terminated, False),
        ("truncated", ""): np.append(truncated, False),
        ("valid", ""): np.append(np.isfinite(episode.rewards), False),
    }


def _packed(array: Array) -> Tensor:
    """Compress where it pays; who has to see what is not finite opens only RAW."""
    raw = pack(array)
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        return raw
    packed = pack(array, "ZSTD")
    return packed if len(packed.data) <= _PAYS_BELOW * len(raw.data) else raw
