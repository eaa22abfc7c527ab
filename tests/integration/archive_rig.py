"""Archivers as processes, killed or asked to stop, and what they have left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from archive.archive_source import ArchiveSource
from archive.verify import verify
from infra.kafka.reading import read_to_end
from schemas.codec import encode
from schemas.topics import TRAJECTORIES
from tests.integration.processor_rig import ROOT, Rig, wait_until

END_S = 120.0
_ROLE = """
from archive import archiver
archiver.LAST_S = archiver._FLUSH_S = 60.0  # a busy machine may stall for longer
archiver.main()
"""


def environment(rig: Rig, archives: Path) -> dict[str, str]:
    assert rig.settings.bootstrap_servers and rig.settings.zookeeper
    return {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": rig.settings.bootstrap_servers,
        "ROLLSTREAM_ZOOKEEPER": rig.settings.zookeeper,
        "ROLLSTREAM_DATA_DIR": str(rig.settings.data_dir),
        "ROLLSTREAM_ARCHIVES": str(archives),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def archiver(rig: Rig, archives: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process: ``rollstream`` with these words; none: the role."""
    command = ["-m", "rollstream", *words] if words else ["-c", _ROLE, rig.name]
    child = subprocess.Popen(
        [sys.executable, *command],
        env=environment(rig, archives),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def run_archive(rig: Rig, archives: Path, *words: str) -> tuple[int, Any, str]:
    """Run the command to its end; return its exit code, JSON and what it said."""
    with archiver(rig, archives, "archive", rig.name, "--json", *words) as child:
        out, said = child.communicate(timeout=END_S)
    return child.returncode, json.loads(out) if out else None, said


def num_parts(folder: Path) -> int:
    """How many lines of parts there are; 0: no archive yet."""
    if not (folder / "manifest.jsonl").exists():
        return 0
    return len(ArchiveSource(folder).manifest.parts)


def wait_for_records(folder: Path, count: int) -> None:
    def are_there() -> bool:
        if not num_parts(folder):
            return False
        return sum(p.records for p in ArchiveSource(folder).manifest.parts) >= count

    wait_until(are_there, END_S, f"{count} records")


def wait_for_parts(folder: Path, count: int) -> None:
    wait_until(lambda: num_parts(folder) >= count, END_S, f"{count} parts")


def assert_is_archived(rig: Rig, folder: Path) -> int:
    """Every record of the topic once, to the byte; return how many."""
    in_topic = {
        (partition, message.offset): (message.timestamp_ms, message.value)
        for partition in range(rig.partitions)
        for message in read_to_end(rig.settings, rig.topic(TRAJECTORIES), partition)
    }
    found = [
        (
            (each.address.partition, each.address.offset),
            (each.appended_at_ms, encode(each.record)),
        )
        for partition, (first, end) in ArchiveSource(folder).bounds().items()
        for each in ArchiveSource(folder).read(partition, first, end)
    ]
    assert len(found) == len(in_topic)
    assert dict(found) == in_topic
    verified = verify(folder, lambda done, of: None)
    assert (verified.problems, verified.left_over) == ([], [])
    assert verified.records == len(found)
    return len(found)
