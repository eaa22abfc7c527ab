"""What a process says -> JSON lines in its log; readable lines on a terminal.

All of it goes through Python's `logging`, warnings and uncaught exceptions included.
Only what other languages' code writes to stderr, and what environments print, is raw.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from pydantic import SecretStr
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from infra.log_rotation import EmptiedInPlace
from infra.settings import Settings

LOG_FILE = "ROLLSTREAM_LOG_FILE"
"""The file that who started a process has made its stdout and stderr: kept short."""

LOG_LEVEL = "ROLLSTREAM_LOG_LEVEL"
MAX_MESSAGE = 16_384
"""Characters of a message, and of a traceback."""

# What they tell is of connections that are tried again: the broker being away is said
# by what then waits for it.
_QUIET = {
    "aiokafka": logging.CRITICAL,
    "kazoo": logging.CRITICAL,
    "rollstream.kafka": logging.ERROR,
    "onnx_ir": logging.WARNING,
    "onnxscript": logging.WARNING,
}
_NAMES = {
    "asctime": "time",
    "levelname": "level",
    "name": "logger",
    "exc_info": "exception",
    "stack_info": "stack",
}
_CLIENT_PASSWORD = re.compile(
    r"((?:sasl|ssl)[._]\w*[._]?(?:password|token|secret)['\"]?\s*[:=]\s*)"
    r"('[^']*'|\"[^\"]*\"|[^\s,}]+)"
)
_CONTROL = {
    code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160))
}
_HARMLESS = {code: mark for code, mark in _CONTROL.items() if chr(code) not in "\n\t"}
_MIN_SECRET = 4  # a shorter one would be found in any text
_log = logging.getLogger("rollstream")


def configure_logging(experiment: str | None, role: str, index: int) -> None:
    """Let this process log; called once, first, also after a fork.

    Args:
        experiment: whose process it is; None: of none, as an agent.
        role: what it is.
        index: 0, 1, ... within the role.
    """
    who: dict[str, Any] = {"role": role, "index": index}
    if experiment is not None:
        who = {"experiment": experiment, **who}
    level = os.environ.get(LOG_LEVEL) or "INFO"
    known = logging.getLevelNamesMapping()
    logging.basicConfig(
        level=known.get(level.upper(), logging.INFO),
        handlers=[_make_handler(who)],
        force=True,
    )
    quiet_clients()
    logging.captureWarnings(True)
    sys.excepthook = _on_exception
    sys.unraisablehook = _on_unraisable
    threading.excepthook = _on_thread_exception
    # The end of a process in native code is told by nobody else.
    faulthandler.enable()
    if level.upper() not in known:
        _log.warning("%s: expected a level, found %r", LOG_LEVEL, level)


def quiet_clients() -> None:
    """Have clients not tell of each connection that they make anew.

    Also in a command, which logs nothing itself: warnings go to stderr all the same.
    """
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)


def _make_handler(who: dict[str, Any]) -> logging.Handler:
    handler: logging.Handler
    if sys.stderr.isatty():
        handler = _terminal_handler(f"{who['role']}/{who['index']}")
    else:
        path = os.environ.get(LOG_FILE)
        handler = logging.StreamHandler()
        if path and _is_stderr(Path(path)):
            rotating = EmptiedInPlace(Path(path))
            rotating.watch()
            handler = rotating
        handler.setFormatter(json_formatter(who))
    handler.addFilter(Tidy(_secrets()))
    return handler


def json_formatter(who: dict[str, Any]) -> JsonFormatter:
    """Return what makes one line of JSON of a record, control characters escaped."""
    formatter = JsonFormatter(
        ["asctime", "levelname", *who, "name", "message"],
        rename_fields=_NAMES,
        static_fields=who,
        # A library's own fields must not take the place of ours.
        reserved_attrs=[*RESERVED_ATTRS, *who, *_NAMES.values()],
    )
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    return formatter


def _terminal_handler(name: str) -> logging.Handler:
    # Here, not above: who writes to a file does without.
    from rich.console import Console
    from rich.highlighter import NullHighlighter
    from rich.logging import RichHandler

    handler = RichHandler(
        console=Console(stderr=True),
        show_path=False,
        highlighter=NullHighlighter(),
        log_time_format="%H:%M:%S",
    )
    handler.setFormatter(_Harmless(f"{name} %(message)s"))
    return handler


class _Harmless(logging.Formatter):
    """Text that a terminal shows, and does not obey."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).translate(_HARMLESS)


def _is_stderr(path: Path) -> bool:
    """Whether a file is what this process's stderr is written to."""
    try:
        return os.path.samestat(path.stat(), os.fstat(2))
    except OSError:
        return False


class Tidy(logging.Filter):
    """Bounds messages and tracebacks, and takes secrets out of them."""

    def __init__(self, secrets: frozenset[str]) -> None:
        super().__init__()
        self._secrets = sorted(secrets, key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace a record's texts; every record passes."""
        try:
            message = record.getMessage()
        except Exception:  # a library's mistake: its text is better than none
            message = f"{record.msg} (its arguments do not fit)"
        record.msg, record.args = self._clean(message, keep_end=False), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
        if record.exc_text:
            # Its last line says what happened.
            record.exc_text = self._clean(record.exc_text, keep_end=True)
        return True

    def _clean(self, text: str, *, keep_end: bool) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _CLIENT_PASSWORD.sub(r"\1***", text)
        left = len(text) - MAX_MESSAGE
        if left <= 0:
            return text
        mark = f"[{left} characters more]"
        if keep_end:
            return f"{mark} {text[-MAX_MESSAGE:]}"
        return f"{text[:MAX_MESSAGE]} {mark}"


def _secrets() -> frozenset[str]:
    """Return the values of the variables that settings keep secret."""
    names = [
        str(field.validation_alias)
        for field in Settings.model_fields.values()
        if SecretStr in get_args(field.annotation)
    ]
    values = (os.environ.get(name, "") for name in names)
    return frozenset(value for value in values if len(value) >= _MIN_SECRET)


def _on_exception(
    kind: type[BaseException], exc: BaseException, trace: TracebackType | None
) -> None:
    _log.critical("unexpected", exc_info=(kind, exc, trace))


def _on_unraisable(told: sys.UnraisableHookArgs) -> None:
    what = told.err_msg or "an exception that nobody could catch"
    exc = told.exc_value
    _log.error("%s: %r", what, told.object, exc_info=exc)


def _on_thread_exception(told: threading.ExceptHookArgs) -> None:
    name = told.thread.name if told.thread else "a thread"
    _log.error("thread %s ended unexpectedly", name, exc_info=told.exc_value)
