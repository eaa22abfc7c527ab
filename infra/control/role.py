"""A role process: its experiment, its index, and when it has to stop.

Started by an agent, or by hand: ``python -m producers.worker EXPERIMENT --index 0``.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from setproctitle import setproctitle

from infra.control.experiments import read_experiment
from infra.errors import Hopeless, RollstreamError
from infra.logs import configure_logging
from infra.settings import Settings, load_settings
from schemas.errors import SchemaError
from schemas.experiment import Experiment, Spec
from schemas.topics import Topic, group_name, topic_name

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_UNDELIVERED = 4
EXIT_REFUSED = 78
"""What it is asked for cannot work here, however often it is tried: EX_CONFIG."""

PARENT_PID = "ROLLSTREAM_PARENT_PID"
"""Who started a role process; without it, whoever is its parent then."""

_PARENT_CHECK_S = 1.0
_log = logging.getLogger("rollstream")


@dataclass(frozen=True)
class RoleContext:
    """Who a role process is.

    Attributes:
        settings: where it runs.
        experiment: the spec it was started with.
        run_id: the run its records belong to.
        role: ``worker``, ``processor``, ``learner`` or ``evaluator``.
        index: 0, 1, ... within the role.
        spec_offset: of the spec, in the topic of experiments; -1: none.
    """

    settings: Settings
    experiment: Experiment
    run_id: str
    role: str
    index: int
    spec_offset: int

    @property
    def spec(self) -> Spec:
        """The experiment's spec."""
        return self.experiment.spec

    @property
    def member_key(self) -> str:
        """The key of its Member, metrics and events."""
        return f"{self.role}/{self.index}"

    @property
    def client_id(self) -> str:
        """Names its clients in the broker's logs."""
        return f"{self.experiment.name}-{self.role}-{self.index}"

    def topic(self, topic: Topic) -> str:
        """Return the full name of a topic of the experiment."""
        return topic_name(topic, self.experiment.name)

    def group(self) -> str:
        """Return the consumer group of the role."""
        return group_name(self.experiment.name, self.role)


class ToldToStop(Exception):
    """The process is to stop, and has done nothing yet that must be finished."""


class StopRequest:
    """Set by SIGTERM, SIGINT, or when the process that started us is gone."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s``; return whether to stop."""
        return self._event.wait(timeout_s)

    def check(self) -> None:
        """Raise `ToldToStop` when it is time to."""
        if self._event.is_set():
            raise ToldToStop(self.reason)

    def set(self, reason: str) -> None:
        """Ask to stop; the first reason stands."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def listen(self) -> StopRequest:
        """Install the signal handlers and the watch on the parent; return self."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Told by who started us: it may be gone already, while we were imported.
        parent = int(os.environ.get(PARENT_PID, os.getppid()))
        self._check_parent(parent)
        watch = threading.Thread(
            target=self._watch_parent, args=(parent,), name="parent", daemon=True
        )
        watch.start()
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.set(signal.Signals(number).name)

    def _watch_parent(self, parent: int) -> None:
        # A supervisor killed with -9 cannot stop its children: they see it themselves.
        while not self._event.wait(_PARENT_CHECK_S):
            self._check_parent(parent)

    def _check_parent(self, parent: int) -> None:
        if os.getppid() != parent:
            self.set(f"the process that started this one ({parent}) is gone")


def role_main(
    role: str,
    run: Callable[[RoleContext, StopRequest], int],
    argv: list[str] | None = None,
) -> NoReturn:
    """Run a role process and exit with its code.

    Args:
        role: the role's name.
        run: does the work until told to stop; returns the exit code: 0 asked to stop
            and everything delivered, 4 something could not be delivered. When it
            raises `Hopeless`, the code is 78: nobody starts it again.
        argv: the arguments; those of the process when None.
    """
    args = _parse(role, argv)
    # What `ps` shows: one that was forked has the server's command line.
    setproctitle(f"rollstream {role}/{args.index} {args.experiment}")
    configure_logging(args.experiment, role, args.index)
    try:
        context = load_context(args.experiment, role, args.index, args.spec_offset)
        # Not before: until now a signal may end the process as it always does, also
        # while it waits for a broker that is away.
        code = run(context, StopRequest().listen())
    except ToldToStop:
        code = EXIT_OK
    except Hopeless as exc:
        _log.error("%s", exc)
        code = EXIT_REFUSED
    except (RollstreamError, SchemaError) as exc:
        _log.error("%s", exc)
        code = EXIT_ERROR
    except Exception:
        _log.exception("unexpected")
        code = EXIT_ERROR
    logging.shutdown()
    sys.stdout.flush()
    # Clients' and environments' threads must not keep a finished process alive.
    os._exit(code)


def load_context(
    name: str, role: str, index: int, spec_offset: int | None = None
) -> RoleContext:
    """Return the context of a role, with the spec from the topic of experiments.

    Args:
        name: the experiment's.
        role: the role's.
        index: 0, 1, ... within the role.
        spec_offset: of the spec's record; None, or where that is gone: the one in
            force.

    Raises:
        RollstreamError: there is no such experiment, or the broker does not answer.
    """
    settings = load_settings()
    entry = read_experiment(settings, name, spec_offset)
    return RoleContext(
        settings, entry.experiment, entry.run_id, role, index, entry.offset
    )


def _parse(role: str, argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=f"Run one {role} of an experiment, until SIGTERM.",
        epilog=f"Example: {role} cartpole-dqn --index 0",
    )
    parser.add_argument("experiment", help="name of a published experiment")
    parser.add_argument("--index", type=int, default=0, help="0, 1, ... (default 0)")
    parser.add_argument(
        "--spec-offset", type=int, help="of the spec's record (default: in force now)"
    )
    return parser.parse_args(argv)
