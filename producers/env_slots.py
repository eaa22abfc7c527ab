"""Where one environment of a vector lives: in this process, or in its own.

A slot is asked to advance, then gives its row; what goes wrong comes as SlotFailed, and
the slot is then rebuilt by ``build``. ``is_ready`` says when that is done.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, Protocol

from producers.env_process import Failed, Ready, serve
from producers.env_recipe import EnvRecipe, EnvRefused
from producers.episode_runner import EpisodeRunner, Row
from producers.seeding import StreamSeeds
from producers.spaces import AnySpace
from producers.watchdog import StepTimeout, Watchdog

Spaces = tuple[AnySpace, AnySpace]

# Its pipe is closed: it has ended, or is about to as soon as it gets a core.
_END_S = 10.0


class SlotFailed(Exception):
    """The environment raised, hung or died; the text says which and why."""


class Slot(Protocol):
    """One environment of a vector."""

    def build(self) -> None:
        """Make the environment anew, without waiting for it if that is possible."""

    def is_ready(self, wait: bool) -> bool:
        """Whether it is built; raises SlotFailed if it never will be."""

    def spaces(self) -> Spaces:
        """Return its observation and action space; only when ready."""

    def start(self, seeds: StreamSeeds, episode: int) -> None:
        """Begin with an episode's reset."""

    def ask(self, action: Any) -> None:
        """Have it advance."""

    def answer(self) -> Row:
        """Return the row asked for; raises SlotFailed."""

    def close(self) -> None:
        """Close the environment; never raises, never hangs."""


class InProcess:
    """An environment in this process."""

    def __init__(self, recipe: EnvRecipe, index: int, watchdog: Watchdog) -> None:
        self._recipe = recipe
        self._index = index
        self._watchdog = watchdog
        self._runner: EpisodeRunner | None = None
        self._action: Any = None
        self._what = f"environment {index}"

    def build(self) -> None:
        """Make it now; ``is_ready`` says how that went."""
        self.close()

    def is_ready(self, wait: bool) -> bool:
        """Make it if need be."""
        if self._runner is None:
            self._runner = self._guard(EpisodeRunner, self._recipe, self._index)
        return True

    def spaces(self) -> Spaces:
        """Return its spaces."""
        env = self._built().env
        return env.observation_space, env.action_space

    def start(self, seeds: StreamSeeds, episode: int) -> None:
        """Begin with an episode's reset."""
        self._built().start(seeds, episode)

    def ask(self, action: Any) -> None:
        """Remember the action."""
        self._action = action

    def answer(self) -> Row:
        """Advance now."""
        row: Row = self._guard(self._built().advance, self._action)
        return row

    def close(self) -> None:
        """Close it, whatever it raises."""
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                self._guard(runner.close)
            except SlotFailed:
                pass  # it was given up already, with its own reason

    def _built(self) -> EpisodeRunner:
        assert self._runner is not None, "is_ready() comes first"
        return self._runner

    def _guard(self, call: Any, *args: Any) -> Any:
        try:
            with self._watchdog.watching(self._what):
                return call(*args)
        except EnvRefused:
            raise
        except StepTimeout as exc:
            raise SlotFailed(str(exc)) from None
        except Exception as exc:
            raise SlotFailed(f"{self._what}: {exc!r}") from exc


class OwnProcess:
    """An environment in a process of its own, which can be killed.

    Processes are forked from a server that has none of our clients and threads.
    """

    def __init__(self, recipe: EnvRecipe, index: int, timeout_s: float) -> None:
        self._recipe = recipe
        self._index = index
        self._timeout_s = timeout_s
        self._process: ForkServerProcess | None = None
        self._pipe: Connection | None = None
        self._spaces: Spaces | None = None
        self._deadline = 0.0

    def build(self) -> None:
        """Start a new process; it tells when it is ready."""
        self.close()
        context = _context(self._recipe.modules)
        self._pipe, theirs = context.Pipe()
        process = context.Process(
            target=serve,
            args=(theirs, self._recipe, self._index),
            name=f"environment-{self._index}",
            daemon=True,
        )
        process.start()
        self._process = process  # one that never started cannot be joined
        theirs.close()
        self._spaces, self._deadline = None, time.monotonic() + self._timeout_s

    def is_ready(self, wait: bool) -> bool:
        """Look, or wait, for the process to have made its environment."""
        if self._spaces is None:
            ready = self._receive(wait, "made")
            if ready is None:
                return False
            assert isinstance(ready, Ready)
            self._spaces = (ready.observation_space, ready.action_space)
        return True

    def spaces(self) -> Spaces:
        """Return the spaces that the process sent."""
        assert self._spaces is not None, "is_ready() comes first"
        return self._spaces

    def start(self, seeds: StreamSeeds, episode: int) -> None:
        """Begin with an episode's reset."""
        self._send(("start", (seeds, episode)))

    def ask(self, action: Any) -> None:
        """Send the action."""
        self._deadline = time.monotonic() + self._timeout_s
        self._send(("advance", action))

    def answer(self) -> Row:
        """Receive the row, or find out why there is none."""
        row = self._receive(True, "stepped")
        assert isinstance(row, Row)
        return row

    def close(self) -> None:
        """End the process: politely when it answers, else by a kill."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._pipe is not None:
            self._pipe.close()
        process.join(0.5)
        if process.is_alive():
            process.kill()
            process.join()

    def _send(self, message: Any) -> None:
        assert self._pipe is not None, "build() comes first"
        try:
            self._pipe.send(message)
        except OSError:
            pass  # it died: the next receive finds out how

    def _receive(self, wait: bool, deed: str) -> Any:
        assert self._pipe is not None, "build() comes first"
        what = f"environment {self._index}"
        left_s = max(self._deadline - time.monotonic(), 0.0)
        try:
            if not self._pipe.poll(left_s if wait else 0.0):
                if left_s > 0 and not wait:
                    return None
                raise SlotFailed(
                    f"{what}: expected it to be {deed} within {self._timeout_s:g} s, "
                    "found no answer"
                )
            answer = self._pipe.recv()
        except (EOFError, OSError) as exc:
            raise SlotFailed(f"{what}: its process ended{self._exit_code()}") from exc
        if isinstance(answer, Failed):
            if answer.refused:
                raise EnvRefused(answer.reason)
            raise SlotFailed(f"{what}: {answer.reason}")
        return answer

    def _exit_code(self) -> str:
        if self._process is None:
            return ""
        self._process.join(_END_S)
        code = self._process.exitcode
        return "" if code is None else f" with code {code}"


def _context(modules: tuple[str, ...]) -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # Imported once, in the server. The main module is run again by every child: what
    # it imports has to be there by then too.
    main = getattr(sys.modules["__main__"], "__spec__", None)
    name = main.name if main is not None else ""
    mains = [] if not name or name.endswith("__main__") else [name]
    context.set_forkserver_preload(["producers.env_process", *modules, *mains])
    return context
