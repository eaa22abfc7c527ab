"""A side that is another library: a script in an environment of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.beside.section import Measured, Place, Side
from benchmarks.children import ChildFailed, run_child
from benchmarks.peers import Peer, environment, python_of

SCRIPTS = Path(__file__).parent / "scripts"
"""What peers run: each imports its library, numpy, and what lies beside it."""


def peer_side(name: str, peer: Peer, job: Callable[[Place], Mapping[str, Any]]) -> Side:
    """Return a side that is measured by ``peer.script JOB FOUND``.

    The script reads the job's JSON, and writes to FOUND
    ``{"figures": {...}, "versions": {...}}``.
    """

    def measure(place: Place) -> Measured:
        # First: it may find that something else is lacking, and installing takes long.
        wanted = job(place)
        python = python_of(peer, place.settings.cache_dir, place.show)
        return _run([str(python), str(peer.script)], name, wanted, place)

    return Side(name, measure)


def own_process(
    name: str, module: str, job: Callable[[Place], Mapping[str, Any]]
) -> Side:
    """Return a side of ours that is measured by ``python -m MODULE JOB FOUND``."""

    def measure(place: Place) -> Measured:
        return _run([sys.executable, "-m", module], name, job(place), place)

    return Side(name, measure, is_ours=True)


def _run(
    command: list[str], name: str, job: Mapping[str, Any], place: Place
) -> Measured:
    stem = place.logs / Side(name, lambda _: Measured({}, {})).slug
    job_file, found_file = stem.with_suffix(".job"), stem.with_suffix(".found")
    job_file.write_text(json.dumps(job))
    found_file.unlink(missing_ok=True)
    command = [*command, str(job_file), str(found_file)]
    run_child(command, environment(), stem.with_suffix(".log"), place.show)
    if not found_file.exists():
        raise ChildFailed(
            f"{name}: expected figures in {found_file}, found none",
            f"read {stem.with_suffix('.log')}",
        )
    found = json.loads(found_file.read_text())
    return Measured(found["figures"], found["versions"])
