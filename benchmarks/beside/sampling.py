"""Prioritised replay: rows drawn and given new priorities, by our buffer and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.beside.peer_side import SCRIPTS, own_process, peer_side
from benchmarks.beside.section import OURS, Figure, Goal, Place, Section
from benchmarks.peers import Peer

CPPRB, TORCHRL, REVERB = "cpprb", "TorchRL", "dm-reverb"

_BATCH = 512
_ROWS = 1_000_000
# Of Reverb, which takes each row alone: a million are minutes.
_REVERB_ROWS, _REVERB_ROWS_QUICK = 65_536, 8_192

_CPPRB_PEER = Peer("cpprb", ("cpprb==11.0.0",), SCRIPTS / "sampling_cpprb.py")
# Its compiled trees fit one version of torch only.
_TORCHRL_PEER = Peer(
    "torchrl", ("torchrl==0.14.1", "torch==2.14.1"), SCRIPTS / "sampling_torchrl.py"
)
_REVERB_PEER = Peer(
    "dm-reverb", ("dm-reverb[tensorflow]==0.14.0",), SCRIPTS / "sampling_reverb.py"
)


def job(rows: int, quick_rows: int | None = None) -> Callable[[Place], dict[str, Any]]:
    """Return what a side is told: of a full buffer, its rows and a batch's."""

    def told(place: Place) -> dict[str, Any]:
        kept = quick_rows if place.quick and quick_rows else rows
        return {"rows": kept, "batch": _BATCH, "seconds": 1.0 if place.quick else 5.0}

    return told


SAMPLING = Section(
    name="sampling",
    title="Prioritised samples of 512 of 1 M rows, and their new priorities",
    text=(
        "A full buffer of CartPole's rows: observation, action, n-step return, "
        "discount, bootstrap observation; alpha 0.6, beta 0.4, one process, one "
        "thread. Rows come 8,192 at once, with their priorities; ours as decoded "
        "records, which say where they are from, so that a restart finds them again. "
        "Reverb takes rows one by one from a writer, so that it holds "
        f"{_REVERB_ROWS:,}; its threads sample ahead, its table in the same process, "
        "and it has no weights for beta."
    ),
    figures=(
        Figure("items_per_s", "rows drawn and updated/s", "high"),
        Figure("inserted_per_s", "rows inserted/s", "high"),
        Figure("rows", "rows held"),
    ),
    sides=(
        own_process(OURS, "benchmarks.beside.sampling_ours", job(_ROWS)),
        peer_side(CPPRB, _CPPRB_PEER, job(_ROWS)),
        peer_side(TORCHRL, _TORCHRL_PEER, job(_ROWS)),
        peer_side(REVERB, _REVERB_PEER, job(_REVERB_ROWS, _REVERB_ROWS_QUICK)),
    ),
    goals=(
        Goal(
            "at least 3 M rows drawn and updated/s",
            lambda m: m[OURS]["items_per_s"] >= 3e6,
        ),
    ),
)
