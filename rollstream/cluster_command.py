"""``rollstream up`` and ``down``: Kafka and ZooKeeper on this machine."""

from __future__ import annotations

import json

from rollstream.options import Json

UP_EXAMPLE = 'Example: eval "$(rollstream up)"'
DOWN_EXAMPLE = "Example: rollstream down"


def up(as_json: Json = False) -> None:
    """Start Kafka and ZooKeeper on this machine, and leave them running.

    Prints what to set for other shells; `rollstream down` stops them.
    """
    from rich.console import Console

    from infra.cluster.local import LocalCluster
    from infra.settings import load_settings

    console = Console(stderr=True, highlight=False)
    cluster = LocalCluster(load_settings(), report=console.print)
    found = cluster.start(keep=True)
    cluster.release()
    if as_json:
        print(json.dumps({**found.environment(), "cluster_id": found.cluster_id}))
        return
    for name, value in found.environment().items():
        print(f"export {name}={value}")


def down() -> None:
    """Stop the Kafka and ZooKeeper that were started on this machine."""
    from infra.cluster.local import LocalCluster
    from infra.settings import load_settings

    LocalCluster(load_settings()).stop()
