"""A child is known by its command line from the moment it is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from infra.cluster import process


def test_a_child_is_ours_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)]
    for _ in range(20):
        pid = process.spawn(argv, log_file=tmp_path / "log", environment=os.environ)
        found = process.is_ours(pid, argv[-1:])
        process.kill(pid, argv[-1:])
        assert found
        assert not process.is_ours(pid, argv[-1:])
