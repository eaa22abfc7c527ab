"""The process of one environment: commands in, rows out, over a pipe."""

from __future__ import annotations

import ctypes
import signal
from multiprocessing.connection import Connection
from typing import NamedTuple

from producers.env_recipe import EnvRecipe, EnvRefused
from producers.episode_runner import EpisodeRunner
from producers.spaces import AnySpace

_PR_SET_PDEATHSIG = 1


class Ready(NamedTuple):
    """The environment is made."""

    observation_space: AnySpace
    action_space: AnySpace


class Failed(NamedTuple):
    """It raised; ``refused``: another try will not help."""

    reason: str
    refused: bool


def serve(pipe: Connection, recipe: EnvRecipe, index: int) -> None:
    """Run one environment until the pipe is closed or it fails."""
    # Ctrl-C and SIGTERM are for the worker, which closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    try:
        runner = EpisodeRunner(recipe, index)
        try:
            pipe.send(Ready(runner.env.observation_space, runner.env.action_space))
            _answer(pipe, runner)
        finally:
            runner.close()
    except (EOFError, BrokenPipeError):
        pass  # nobody listens any more
    except Exception as exc:
        refused = isinstance(exc, EnvRefused)
        pipe.send(Failed(str(exc) if refused else repr(exc), refused))


def _answer(pipe: Connection, runner: EpisodeRunner) -> None:
    while True:
        command, argument = pipe.recv()
        if command == "start":
            runner.start(*argument)
        else:
            pipe.send(runner.advance(argument))


def _die_with_parent() -> None:
    # A hung environment does not notice that the pipe was closed.
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass  # not Linux: it ends at the next command
