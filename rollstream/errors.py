"""Errors -> one line on stderr and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from infra.errors import RollstreamError, SettingsError
from infra.printable import printable
from rollstream.interrupts import EXIT_INTERRUPTED
from schemas.errors import SchemaError
from schemas.experiment import SpecError

EXIT_ERROR = 1
EXIT_BAD_INPUT = 2


class BadInput(RollstreamError):
    """What was given on the command line cannot be used."""


@contextmanager
def exits_with_a_message(
    error: int = EXIT_ERROR, refused: int = EXIT_BAD_INPUT
) -> Iterator[None]:
    """Turn what a person can mend into its message and an exit code.

    Args:
        error: the code of what is neither refused input nor Ctrl-C.
        refused: the code of refused input.
    """
    try:
        yield
    except SpecError as exc:
        _say("the experiment is refused:", *exc.problems)
        sys.exit(refused)
    except (BadInput, SettingsError) as exc:
        _say(str(exc))
        sys.exit(refused)
    except (RollstreamError, SchemaError) as exc:
        _say(str(exc))
        sys.exit(error)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        # Of a file system, or of where stdout goes.
        _say(f"{exc.strerror}: {exc.filename or 'what was to be written'}")
        # What is left in the buffer would fail once more, at the very end.
        with suppress(OSError):
            sys.stdout.close()
        sys.exit(error)


def _say(*lines: str) -> None:
    # What topics, nodes and logs hold may be part of a message.
    shown = [printable(part) for line in lines for part in line.splitlines()]
    print("rollstream: " + "\n  ".join(shown), file=sys.stderr)
