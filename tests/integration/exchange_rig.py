"""Commands that bring datasets in and out, and what must be true of the log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from archive.minari_dataset import MinariDataset
from archive.minari_import import SOURCE, MinariSource
from infra.control.experiments import read_experiment
from infra.kafka.clients import make_consumer
from infra.kafka.reading import end_offsets
from infra.settings import Settings
from producers.spaces import describe
from schemas.topics import TRAJECTORIES, topic_name
from tests.integration.replay_rig import PARTITIONS, ReplayRig
from tests.unit.minari_datasets import CARTPOLE, described, episode, export
from tests.unit.recorded_worlds import experiment_named

ID = "human/cartpole-v3"
Ended = tuple[int, str, str]
TOPICS = f"spec.topics.partitions={PARTITIONS}"


class ExchangeRig(ReplayRig):
    """Commands, and datasets in a folder of the test's own."""

    def __init__(
        self, settings: Settings, tmp_path: Path, rollstream: Callable[..., Ended]
    ) -> None:
        """``rollstream`` runs a command here: a process of its own takes seconds."""
        super().__init__(settings, tmp_path)
        self._rollstream = rollstream

    @property
    def root(self) -> Path:
        return self.tmp_path / "datasets"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "rollstream.cli", *words]

    def start_command(self, *words: str) -> subprocess.Popen[bytes]:
        root = str(self.root)
        return self.popen(self.command(*words), MINARI_DATASETS_PATH=root)

    def run(self, *words: str, code: int = 0) -> dict:
        """Run a command to its end; return the JSON that it prints."""
        found, out, err = self._rollstream(*words)
        assert found == code, err[-3000:]
        return json.loads(out) if code == 0 else {"error": err}

    def start_command_piped(self, *words: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            self.command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "MINARI_DATASETS_PATH": str(self.root),
                "ROLLSTREAM_DATA_DIR": str(self.settings.data_dir),
            },
        )
        self._children.append(child)
        return child

    def dataset(self, lengths: list[int], dataset_id: str = ID) -> MinariSource:
        """Write a dataset; return what its records have to be."""
        episodes = [
            episode(*CARTPOLE, length, number, ending="TC"[number % 2])
            for number, length in enumerate(lengths)
        ]
        export(self.root, episodes, described(*CARTPOLE), dataset_id)
        opened = MinariDataset(self.root, dataset_id, describe)
        return MinariSource(opened, experiment_named(SOURCE))

    def check_is_the_dataset(self, name: str, source: MinariSource) -> None:
        """Each record of the dataset once, in its place, and nothing else."""
        run_id = read_experiment(self.settings, name).run_id
        expected: dict[int, dict[str, list]] = {p: {} for p in range(PARTITIONS)}
        for stream, (first, end) in source.bounds().items():
            records = [
                replace(each.record, experiment=name, run_id=run_id)
                for each in source.read(stream, first, end)
            ]
            expected[stream % PARTITIONS][f"w{stream}"] = records
        for partition, found in self.trajectories(name).items():
            by_worker: dict[str, list] = {}
            for record in found:
                by_worker.setdefault(record.worker, []).append(record)
            assert by_worker == expected[partition]

    def ends(self, name: str) -> dict[int, int]:
        consumer = make_consumer(self.settings, group=None, client_id="rig-ends")
        with closing(consumer):
            return end_offsets(consumer, topic_name(TRAJECTORIES, name))


def imports(name: str, *more: str, dataset_id: str = ID) -> tuple[str, ...]:
    return (
        "import", f"minari:{dataset_id}", "--into", name, "--json",
        "--set", "spec.env.id=CartPole-v1", "--set", TOPICS,
        "--set", "spec.processor.nStep=5", *more,
    )  # fmt: skip
