"""Errors -> one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from infra.errors import RollstreamError
from infra.printable import printable
from schemas.errors import SchemaError
from schemas.experiment import SpecError

EXIT_ERROR = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


@contextmanager
def exits_with_a_message() -> Iterator[None]:
    """Turn what a person can mend into its message and an exit code."""
    try:
        yield
    except SpecError as exc:
        _say("the experiment is refused:", *exc.problems)
        sys.exit(EXIT_BAD_INPUT)
    except (RollstreamError, SchemaError) as exc:
        _say(str(exc))
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _say(*lines: str) -> None:
    # What topics, nodes and logs hold may be part of a message.
    shown = [printable(part) for line in lines for part in line.splitlines()]
    print("rollstream: " + "\n  ".join(shown), file=sys.stderr)
