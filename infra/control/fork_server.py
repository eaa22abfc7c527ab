"""A process that has imported what roles need, and forks them: ready at once.

``python -m infra.control.fork_server FD MODULE...``, started by
`infra.control.fork_client`, which alone holds the other end of the socket FD. Packets
of JSON, nothing else, go through it: see `Request` and `Report`. A module's function
``warm_up()`` is called where there is one; ``main(argv)`` runs in the child.

A fork copies one thread only, and a lock that another thread holds stays locked in the
copy. So nothing here makes a thread, a client, a session or an environment, and nothing
is forked when somebody else's import made one.

`multiprocessing`'s own fork server is not used: it takes pickles, its children share
the session and output of the server, and, worst, fork *their* helpers from it as well:
an environment's process would outlive its worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from setproctitle import setproctitle

PACKET_BYTES = 256 << 10
"""More than a socket sends at once: a larger request fails at its sender."""

_TASKS = Path("/proc/self/task")


class Request(TypedDict):
    """To the server: a process that is wanted.

    Attributes:
        module: one of those that the server was started with.
        argv: for its ``main``.
        env: all environment variables of the process.
        log: the file that its output is appended to.
    """

    module: str
    argv: list[str]
    env: dict[str, str]
    log: str


class Report(TypedDict, total=False):
    """From the server, one of: an import, ready, a fork or why not, a process's end.

    Attributes:
        importing: the module that it imports next.
        ready: whether forks are possible; else ``reason`` says why not.
        pid: of the process that was forked; its pidfd comes with the packet.
        reason: why nothing was forked.
        ended: the pid of a process that ended.
        code: its exit code; negative: the signal that ended it.
    """

    importing: str
    ready: bool
    pid: int
    reason: str
    ended: int
    code: int


class Unforkable(Exception):
    """Forking from this process is not safe; the text says why."""


def preload(names: list[str], tell: Callable[[Report], None]) -> None:
    """Import modules and let them warm up; each is told of before: it may hang.

    Raises:
        Unforkable: one cannot be imported, or started a thread.
    """
    for name in names:
        tell({"importing": name})
        try:
            module = importlib.import_module(name)
            getattr(module, "warm_up", lambda: None)()
        except Exception as exc:  # whatever a module's top level raises
            raise Unforkable(f"{name} cannot be imported: {exc!r}") from exc
        _check_threads(name)


def _check_threads(culprit: str) -> None:
    threads = len(list(_TASKS.iterdir()))
    if threads > 1:
        raise Unforkable(f"{culprit} started threads: there are {threads}")


class ForkServer:
    """Forks on request, and reports each process that ends."""

    def __init__(self, spawner: socket.socket, modules: list[str]) -> None:
        self._spawner = spawner
        self._modules = modules
        self._selector = selectors.DefaultSelector()
        self._selector.register(spawner, selectors.EVENT_READ)
        self._pidfds: dict[int, int] = {}  # by pid

    def run(self) -> None:
        """Serve until the spawner is gone; its children see that we are, and stop."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._spawner:
                    self._reap(key.data)
                    continue
                packet = self._spawner.recv(PACKET_BYTES)
                if not packet:
                    return
                self._answer(json.loads(packet))

    def _answer(self, request: Request) -> None:
        try:
            if request["module"] not in self._modules:
                raise Unforkable(f"{request['module']} is not one that is served")
            _check_threads("something")
            pid = os.fork()
        except (Unforkable, OSError) as exc:
            send(self._spawner, {"reason": str(exc)})
            return
        if pid == 0:
            self._become(request)
        pidfd = os.pidfd_open(pid)
        self._pidfds[pid] = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, pid)
        send(self._spawner, {"pid": pid}, pidfd)

    def _reap(self, pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        pidfd = self._pidfds.pop(pid)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(status)
        send(self._spawner, {"ended": pid, "code": code})

    def _become(self, request: Request) -> NoReturn:
        """Be the process that was asked for; never return into the server's loop."""
        try:
            # The spawner must see when the server ends, though we do not.
            self._selector.close()
            self._spawner.close()
            for pidfd in self._pidfds.values():
                os.close(pidfd)
            _begin_anew(request)
            importlib.import_module(request["module"]).main(request["argv"])
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(1)


def _begin_anew(request: Request) -> None:
    """Shed what a process that was started afresh would not have."""
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    sys.argv = [request["module"], *request["argv"]]


def send(to: socket.socket, report: Report, fd: int | None = None) -> None:
    """Send a report, with a file descriptor where there is one."""
    packet = json.dumps(report).encode()
    socket.send_fds(to, [packet], [] if fd is None else [fd])


def receive(of: socket.socket) -> tuple[Any, int | None]:
    """Return a report and the file descriptor that came with it; ({}, None): the end.

    Raises:
        BlockingIOError: nothing has come, and the socket does not wait.
    """
    packet, fds, _, _ = socket.recv_fds(of, PACKET_BYTES, 1)
    return json.loads(packet) if packet else {}, fds[0] if fds else None


def main(fd: int, modules: list[str], others: list[str]) -> int:
    """Serve the spawner at the other end of a socket; return the exit code."""
    # Ctrl-C and the like are for the spawner, whose end we see.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setproctitle("rollstream fork-server")
    spawner = socket.socket(fileno=fd)
    spawner.set_inheritable(False)
    try:
        preload([*others, *modules], partial(send, spawner))
    except Unforkable as exc:
        send(spawner, {"ready": False, "reason": str(exc)})
        return 1
    # What is there by now is never garbage: not looked at, its pages stay shared.
    gc.collect()
    gc.freeze()
    send(spawner, {"ready": True})
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        ForkServer(spawner, modules).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
