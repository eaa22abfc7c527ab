"""A log file that is kept short by its own process, also of what others write there."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

MAX_LOG_BYTES = 8 << 20
BACKUPS = 3
"""``worker-0.log.1`` to ``.3``: with them a role's logs take up to 32 MiB."""

_LOOK_S = 1.0


class EmptiedInPlace(RotatingFileHandler):
    """Copies a full file aside and empties it, rather than rename it.

    The file is also the stderr of this process, of its environments' processes and of
    what those start, none of which would notice that it has another name. Of what is
    logged nothing is lost; of what they write by themselves, what comes between the
    copy's last byte and the emptying.
    """

    def __init__(
        self, path: Path, max_bytes: int = MAX_LOG_BYTES, backups: int = BACKUPS
    ) -> None:
        super().__init__(
            path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8"
        )
        self.rotator = move_aside

    def watch(self) -> None:
        """Look each second whether others have filled it."""
        threading.Thread(target=self._watch, name="log-rotation", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            with suppress(OSError):
                self.roll_if_full()

    def roll_if_full(self) -> None:
        """Move the file's text aside when there is too much of it."""
        self.acquire()
        try:
            if os.stat(self.baseFilename).st_size >= self.maxBytes:
                self.doRollover()
        finally:
            self.release()


def move_aside(source: str, target: str) -> None:
    """Move the text of a file, which stays, to another.

    Readers see the target when it is whole and the source is empty. On a full disk the
    source keeps its text.
    """
    copied = f"{target}.new"
    try:
        with open(source, "rb+") as old, open(copied, "wb", buffering=0) as new:
            shutil.copyfileobj(old, new, 1 << 20)
            old.truncate(0)
        os.replace(copied, target)
    except OSError:
        with suppress(OSError):
            os.remove(copied)
