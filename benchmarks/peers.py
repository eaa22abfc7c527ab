"""Other libraries, each in a virtual environment of its own under the cache directory.

Torch and what else is large is not installed twice: a ``.pth`` file shows them the
packages of the environment that this runs in, behind their own; and this package, so
that what several scripts need is written once.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import output_of
from infra.cluster.process import exclusive_lock
from infra.errors import RollstreamError

_SHOWN = "zz_behind_our_own.pth"
_DONE = "installed"
_LOCK_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Peer:
    """A library, pinned, and the script that is run with it."""

    name: str
    requirements: tuple[str, ...]
    script: Path


HERE = Path(__file__).parent / "learning"
_ROOT = Path(__file__).parents[1]
SB3_PEER = Peer(
    "stable-baselines3", ("stable-baselines3==2.9.2",), HERE / "peer_sb3.py"
)
RLLIB_PEER = Peer("rllib", ("ray[rllib]==2.60.0",), HERE / "peer_rllib.py")
PEERS = {peer.name: peer for peer in (SB3_PEER, RLLIB_PEER)}


class PeerUnavailable(RollstreamError):
    """A library that cannot be installed here."""


def python_of(peer: Peer, cache_dir: Path, show: Callable[[str], None]) -> Path:
    """Return the interpreter of a peer's environment, which is made at first use.

    ``show`` is told so: it takes a minute or two.

    Raises:
        PeerUnavailable: it cannot be made, with pip's last words.
    """
    root = cache_dir / "peers" / peer.name
    root.parent.mkdir(parents=True, exist_ok=True)
    # Two at once: the second waits, and finds it there.
    with exclusive_lock(root.parent / f".{peer.name}.lock", _LOCK_TIMEOUT_S):
        return _made(peer, root, show)


def _made(peer: Peer, root: Path, show: Callable[[str], None]) -> Path:
    done, wanted = root / _DONE, " ".join(peer.requirements)
    python = root / "bin" / "python"
    if done.exists() and done.read_text() == wanted and python.exists():
        _show_ours(root)
        return python
    show(f"installing {wanted} in {root}")
    shutil.rmtree(root, ignore_errors=True)
    _run(peer, [sys.executable, "-m", "venv", str(root)])
    _show_ours(root)
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    _run(peer, [*pip, *peer.requirements])
    done.write_text(wanted)
    return python


def _show_ours(root: Path) -> None:
    # Each time: it may have been made for another checkout.
    packages = root / "lib" / f"python{sysconfig.get_python_version()}/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    shown = dict.fromkeys([sysconfig.get_path("purelib"), str(_ROOT)])
    (packages / _SHOWN).write_text("".join(f"{path}\n" for path in shown))


def environment() -> dict[str, str]:
    """Return what a peer's process finds: one thread, as our own roles have."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _run(peer: Peer, command: list[str]) -> None:
    def failure(found: str) -> PeerUnavailable:
        return PeerUnavailable(
            f"{peer.name}: expected `{' '.join(command[-2:])}` to succeed, found "
            f"{found}",
            "check that the package index can be reached",
        )

    output_of(command, failure)
