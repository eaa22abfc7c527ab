"""Is there room for more experience on the local cluster's disk?"""

from __future__ import annotations

import shutil

from infra.settings import Settings

FLOOR_BYTES = 1 << 30


def is_disk_low(settings: Settings, floor_bytes: int = FLOOR_BYTES) -> bool:
    """Whether the local cluster's disk has less free than the floor.

    A cluster elsewhere looks after its own disks: never low then.
    """
    brokers = (settings.bootstrap_servers or "").split(",")
    local = all(b.rpartition(":")[0] in ("127.0.0.1", "localhost") for b in brokers)
    if not local or not settings.data_dir.exists():
        return False
    return shutil.disk_usage(settings.data_dir).free < floor_bytes
