"""A learner that is as slow as a file says: ``0.2``, each update; ``once 1e6``, one.

Imported by learners through ROLLSTREAM_LEARNER_MODULES.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from learner.algorithms.dqn import Dqn

MODULE = __name__
ORDER = "ROLLSTREAM_TEST_SLOW"
"""Names the file; one that says ``once`` is deleted by who obeys."""

_update = Dqn.update


@wraps(_update)
def _slow(self: Dqn, sample: Any) -> Any:
    order = Path(os.environ[ORDER])
    with suppress(FileNotFoundError):
        text = order.read_text()
        if text.startswith("once "):
            order.unlink()
        time.sleep(float(text.removeprefix("once ") or "0"))
    return _update(self, sample)


# Not in the test's own process, where only the names above are wanted.
if ORDER in os.environ:
    Dqn.update = _slow  # type: ignore[method-assign]
