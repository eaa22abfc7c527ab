"""ZooKeeper: which hosts there are and what runs on them.

Nothing of the data plane depends on it: while ZooKeeper is away everything goes on, and
what is registered here comes back with the next session.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry, RetryFailedError

from infra.control.znodes import (
    AGENTS,
    ROLES,
    RUNS,
    answer,
    facts_of,
    role_path,
    there,
)
from infra.errors import RollstreamError
from infra.settings import Settings

SESSION_S = 10.0
# A session ends up to a tick late, later still where the machine is busy.
CLAIM_WAIT_S = 1.5 * SESSION_S
# One that is there answers at once, but on a busy machine it may stand still for 10 s.
CONNECT_S = 30.0
# kazoo waits up to a minute between its tries: longer than many an outage.
MAX_RECONNECT_S = 1.0
# What a session has left must be enough for what is done in its name.
MARGIN_S = 1.5
_log = logging.getLogger("rollstream.coordination")


class AlreadyRuns(RollstreamError):
    """Another process runs the experiment."""


class Coordination:
    """This process's nodes in ZooKeeper; all ephemeral, all put back when lost.

    Attributes:
        lost_claim: set when, while our session was lost, another process has claimed
            an experiment that we ran.
        certain: cleared by ``doubt_claims``, until our claims were looked at again.
        sessions_lost: how often a session of ours has ended.
        connected_at_s: monotonic time of the newest connection; None: none now.
    """

    def __init__(self, settings: Settings, session_s: float = SESSION_S) -> None:
        if settings.zookeeper is None:
            raise RollstreamError(
                "ROLLSTREAM_ZOOKEEPER: expected host:port, found nothing",
                "`rollstream up` starts a local one",
            )
        self.name = f"{platform.node()}-{os.getpid()}"
        self.session_s = session_s
        self.sessions_lost = 0
        self.connected_at_s: float | None = None
        self._client = KazooClient(
            hosts=settings.zookeeper,
            timeout=session_s,
            connection_retry=KazooRetry(max_tries=-1, max_delay=MAX_RECONNECT_S),
        )
        self._nodes: dict[str, bytes | None] = {}  # None: is to be gone
        self._claims: set[str] = set()
        self.lost_claim = threading.Event()
        self.certain = threading.Event()
        self.certain.set()
        self._lock = threading.Lock()
        self._lost = threading.Event()
        self._closed = threading.Event()
        self._client.add_listener(self._on_state)

    def start(self, timeout_s: float = CONNECT_S) -> None:
        """Connect; raises RollstreamError when ZooKeeper does not answer."""
        try:
            self._client.start(timeout=timeout_s)
        except KazooTimeoutError as exc:
            raise RollstreamError(
                f"ZooKeeper: expected an answer within {timeout_s:.0f} s, found none",
                "`rollstream doctor` shows what is reachable",
            ) from exc
        watch = threading.Thread(target=self._put_back, name="zk-nodes", daemon=True)
        watch.start()

    @property
    def client(self) -> KazooClient:
        """The connection, for what else this process does in ZooKeeper."""
        return self._client

    def sure_until_s(self) -> float:
        """Return until when, in monotonic time, nobody can take this agent for gone.

        Raises:
            KazooException: that is not known now.
        """
        asked_at_s = time.monotonic()
        found = answer(self._client.exists_async(f"{AGENTS}/{self.name}"))
        session, _ = self._client.client_id or (None, b"")
        if found is None or found.ephemeralOwner != session:
            self._lost.set()  # it is put back
            raise NoNodeError
        # The server gives a session all its time anew with each request.
        return asked_at_s + self.session_s - MARGIN_S

    def close(self) -> None:
        """Remove our nodes and disconnect."""
        self._closed.set()
        self._lost.set()
        try:
            self._client.stop()
        except WriterNotClosedException:
            # No answer to our goodbye: the session ends by itself, some seconds later.
            return
        self._client.close()

    def register_agent(self, facts: bytes = b"") -> None:
        """Register this process as an agent; without ``facts``, as one of a run."""
        self._put(f"{AGENTS}/{self.name}", facts or json.dumps(_host_facts()).encode())

    def register_role(self, experiment: str, key: str, pid: int) -> None:
        """Register a role process that lives; again when its pid changed."""
        facts = json.dumps({"agent": self.name, "pid": pid}).encode()
        self._put(role_path(experiment, key), facts)

    def forget_role(self, experiment: str, key: str) -> None:
        """Remove a role process that ended."""
        self._put(role_path(experiment, key), None)

    def heal_roles(self, experiment: str) -> None:
        """Register again what of ours is missing: another's was in its place.

        Raises:
            KazooException: it cannot be done now.
        """
        path = f"{ROLES}/{experiment}"
        with self._lock:
            ours = {p: v for p, v in self._nodes.items() if p.startswith(path + "/")}
        found = there(partial(self._client.get_children, path), list[str]())
        for node, value in ours.items():
            if value is not None and node.rpartition("/")[2] not in found:
                self._write(node, value)

    def claim_experiment(
        self,
        experiment: str,
        wait_s: float = CLAIM_WAIT_S,
        answer_s: float = CONNECT_S,
    ) -> None:
        """Be the only one to run an experiment.

        A run that was killed keeps its claim until its session ends: waits for that.

        Args:
            experiment: its name.
            wait_s: how long another's claim is waited for.
            answer_s: how long each answer of ZooKeeper is.

        Raises:
            AlreadyRuns: somebody else does, and goes on doing so.
            RollstreamError: ZooKeeper was not to be had all that time.
        """
        path, until_s = f"{RUNS}/{experiment}", time.monotonic() + wait_s
        # Answers get lost on the way, and sessions end: asked again.
        retry = KazooRetry(max_tries=-1, max_delay=MAX_RECONNECT_S, deadline=answer_s)
        try:
            while not retry(self._try_claim, path):
                if not retry(self._wait_gone, path, until_s):
                    retry(self._refuse, experiment)
        except RetryFailedError as exc:
            raise RollstreamError(
                f"ZooKeeper: expected answers within {answer_s:.0f} s, found none",
                "`rollstream doctor` shows what is reachable",
            ) from exc

    def _refuse(self, experiment: str) -> None:
        holder = self.claimed_by(experiment)
        if holder is not None:  # or let go in this moment
            raise AlreadyRuns(
                f"experiment {experiment}: expected nobody to run it, found "
                f"{holder.get('host')} pid {holder.get('pid')}",
                "stop that one, or give this experiment another name",
            )

    def doubt_claims(self) -> None:
        """Look at our claims again: we did nothing for so long that they may be lost.

        Sets ``certain`` when they are ours, and ``lost_claim`` before that when not.
        """
        self.certain.clear()
        self._lost.set()

    def live_roles(self, experiment: str) -> dict[str, dict[str, Any]]:
        """Return the role processes registered for an experiment."""
        return self._read_children(f"{ROLES}/{experiment}")

    def claimed_by(self, experiment: str) -> dict[str, Any] | None:
        """Return who runs an experiment in the foreground; None: nobody."""
        value, _ = there(lambda: self._client.get(f"{RUNS}/{experiment}"), (None, None))
        return None if value is None else facts_of(value)

    def forget_experiment(self, experiment: str) -> None:
        """Remove the node under which an experiment's roles were registered."""
        with suppress(NoNodeError, NotEmptyError):
            self._client.delete(f"{ROLES}/{experiment}")

    def agents(self) -> dict[str, dict[str, Any]]:
        """Return the agents that live."""
        return self._read_children(AGENTS)

    def _read_children(self, path: str) -> dict[str, dict[str, Any]]:
        found = {}
        for name in there(partial(self._client.get_children, path), list[str]()):
            with suppress(NoNodeError):  # gone in this moment
                found[name] = self._read(f"{path}/{name}")
        return found

    def _try_claim(self, path: str) -> bool:
        value = json.dumps(_host_facts()).encode()
        try:
            self._client.create(path, value, ephemeral=True, makepath=True)
        except NodeExistsError:
            if not self._is_ours(path):  # of a create whose answer was lost
                return False
        with self._lock:
            self._nodes[path] = value
            self._claims.add(path)
        return True

    def _is_ours(self, path: str) -> bool:
        found = self._client.exists(path)
        return found is not None and found.ephemeralOwner == self._session()

    def _session(self) -> int:
        """Return our session; raises ConnectionLoss while it is not known."""
        known = self._client.client_id
        if known is None:  # the connection was lost since the last answer
            raise ConnectionLoss
        return int(known[0])

    def _wait_gone(self, path: str, until_s: float) -> bool:
        gone = threading.Event()
        if self._client.exists(path, watch=lambda event: gone.set()) is None:
            return True
        return gone.wait(max(0.0, until_s - time.monotonic()))

    def _put(self, path: str, value: bytes | None) -> None:
        with self._lock:
            if self._nodes.get(path) == value:
                return
            self._nodes[path] = value
        self._attempt(partial(self._bring_about, path))

    def _bring_about(self, path: str) -> None:
        value = self._nodes.get(path)
        self._write(path, value)
        with self._lock:
            # Agents see many roles come and go: what is gone is not remembered.
            if value is None and self._nodes.get(path) is None:
                self._nodes.pop(path, None)

    def _write(self, path: str, value: bytes | None) -> None:
        # An ephemeral node of a session that ended would vanish under us: make anew.
        found, session = self._client.exists(path), self._session()
        if path in self._claims and found:
            if found.ephemeralOwner == session:
                return  # not for a moment may it be free
            if self._read(path) != json.loads(value or b"{}"):
                self.lost_claim.set()  # somebody else's now: theirs stands
                return
        if found is not None:
            if found.ephemeralOwner != session and path.startswith(ROLES):
                if self._read(path).get("agent") != self.name:
                    return  # it runs elsewhere by now, and says so
            self._client.delete(path)
        if value is not None:
            self._client.create(path, value, ephemeral=True, makepath=True)

    def _read(self, path: str) -> dict[str, Any]:
        value, _ = self._client.get(path)
        return facts_of(value)

    def _on_state(self, state: str) -> None:
        # A listener that calls ZooKeeper deadlocks: only set a flag.
        connected = state == KazooState.CONNECTED
        self.connected_at_s = time.monotonic() if connected else None
        if state == KazooState.LOST:
            self.sessions_lost += 1
            self._lost.set()

    def _put_back(self) -> None:
        while not self._closed.is_set():
            self._lost.wait()
            self._lost.clear()
            while not self._closed.wait(0.5):
                if self._client.connected and self._attempt(self._write_all):
                    if not self._lost.is_set():  # nor doubted meanwhile
                        self.certain.set()
                    break

    def _write_all(self) -> None:
        for path in list(self._nodes):
            self._bring_about(path)

    def _attempt(self, action: Callable[[], None]) -> bool:
        if not self._client.connected:
            self._lost.set()
            return False
        try:
            action()
        except (KazooException, ValueError) as exc:  # or a node that is not ours
            _log.warning("ZooKeeper: %r; tried again later", exc)
            self._lost.set()
            return False
        return True


def _host_facts() -> dict[str, Any]:
    return {"host": platform.node(), "pid": os.getpid(), "cores": os.cpu_count()}
