"""Records of the policies topic -> the newest policy that can act here.

Pure of Kafka: the records come from whoever follows the topic. What cannot act leaves
the policy before it in place, with a reason to report.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from infra.policies.keys import BEST_KEY as BEST_KEY
from producers.policy import (
    Policy,
    PolicyRefused,
    PolicySession,
    open_graph,
)
from producers.remote_tensors import Fetched, RemoteTensors
from schemas.records import (
    NO_POLICY,
    PolicyChunk,
    PolicyGraph,
    PolicyRef,
    PolicyVersion,
)
from schemas.sizes import MAX_POLICY_BYTES

OpenGraph = Callable[[PolicyGraph], PolicySession]
ChunkId = tuple[int, int, int, int]

PATIENCE_S = 30.0
"""Versions follow each other faster; that of a slow learner is worth being seen."""

__all__ = ["PolicyFeed", "PolicyRefused", "open_graph"]


@dataclass(frozen=True)
class Refusal:
    """A record that did not become a policy, and why."""

    ref: PolicyRef
    reason: str


class PolicyFeed:
    """Follows the policies of one run, and never goes back to an older one.

    Attributes:
        current: the newest that can act; None before the first.
        newest: (epoch, version) of the newest record seen, usable or not.
        every: only versions whose number this divides are there for whoever asks; but
            when no other has come for ``patience_s``, the newest is, whatever its
            number: maybe there will be none any more.
        patience_s: how long that is.
    """

    def __init__(
        self,
        run_id: str,
        open_graph: OpenGraph,
        clock: Callable[[], float] = time.monotonic,
        remote: RemoteTensors | None = None,
    ) -> None:
        self.every = 1
        self.patience_s = PATIENCE_S
        self.current: Policy | None = None
        self.newest = NO_POLICY
        self._run_id = run_id
        self._open_graph = open_graph
        self._session: PolicySession | None = None
        self._waiting: PolicyVersion | None = None
        # The newest, if it is newer than the newest that ``every`` divides.
        self._between: PolicyVersion | None = None
        self._clock = clock
        self._came_at_s = 0.0
        self._remote = remote
        # Of versions that were sent to the topic of policies in parts.
        self._chunks: dict[ChunkId, bytes] = {}

    @property
    def is_fetching(self) -> bool:
        """Whether the tensors of a version are on their way, outside the topic."""
        return self._remote is not None and self._remote.is_fetching

    @property
    def ref(self) -> PolicyRef:
        """What acts: NO_POLICY before the first."""
        return self.current.ref if self.current else NO_POLICY

    def take_graph(self, graph: PolicyGraph) -> Refusal | None:
        """Open a graph; one of an older learner than the one we have is ignored."""
        if graph.run_id != self._run_id:
            return None
        ours = self._session.graph if self._session else None
        if ours and (graph.epoch < ours.epoch or _same(graph, ours)):
            return None
        try:
            self._session = self._open_graph(graph)
        except PolicyRefused as exc:
            return Refusal(PolicyRef(graph.epoch, -1), str(exc))
        return None

    def take_chunk(self, chunk: PolicyChunk) -> None:
        """Keep a part of a large version, until it is used or outdated."""
        ref = PolicyRef(chunk.epoch, chunk.version)
        if chunk.run_id == self._run_id and self._needs(ref):
            self._chunks[(*_key(ref), chunk.slot, chunk.chunk)] = chunk.data

    def take_version(self, version: PolicyVersion) -> None:
        """Note a version; ``load`` makes it act."""
        ref = _ref(version)
        if version.run_id != self._run_id or ref <= self.newest:
            return
        self.newest, self._came_at_s = ref, self._clock()
        if ref.version % self.every == 0:
            self._waiting, self._between = version, None
        else:
            self._between = version
        self._drop_chunks()

    def load(self) -> Refusal | None:
        """Make the newest version noted the current one; only the newest is opened."""
        if self._between and self._clock() - self._came_at_s >= self.patience_s:
            self._waiting, self._between = self._between, None
        if self._remote and (fetched := self._remote.take()):
            return self._load_fetched(fetched)
        version = self._waiting
        if version is None or self._session is None:
            return None
        if version.graph_sha256 != self._session.graph.sha256:
            return None  # its graph is on the way
        if version.chunk_offsets and self._remote:
            self._remote.want(version)
            return None
        try:
            tensors = self._assemble(version)
        except PolicyRefused as exc:
            self._waiting = None
            return Refusal(_ref(version), str(exc))
        if tensors is None:
            return None
        self._waiting = None
        return self._act_with(self._session, version, tensors)

    def _load_fetched(self, fetched: Fetched) -> Refusal | None:
        """Make a version that was asked for the current one, though not the newest."""
        version, session = fetched.version, self._session
        if self._waiting == version:
            self._waiting = None
        if fetched.tensors is None:
            return Refusal(_ref(version), fetched.problem)
        if session is None or version.graph_sha256 != session.graph.sha256:
            return None  # of a learner that another has superseded meanwhile
        return self._act_with(session, version, fetched.tensors, is_verified=True)

    def _act_with(
        self,
        session: PolicySession,
        version: PolicyVersion,
        tensors: bytes,
        *,
        is_verified: bool = False,
    ) -> Refusal | None:
        try:
            params = session.load(version, tensors, is_verified=is_verified)
        except PolicyRefused as exc:
            return Refusal(_ref(version), str(exc))
        if _ref(version) > self.ref:
            self.current = Policy(session, version, tensors, params)
        self._drop_chunks()
        return None

    def _needs(self, ref: PolicyRef) -> bool:
        """Whether a version's chunks may still be used."""
        noted = (each for each in (self._waiting, self._between) if each is not None)
        return ref > self.newest or ref in map(_ref, noted)

    def _drop_chunks(self) -> None:
        chunks = self._chunks.items()
        self._chunks = {k: d for k, d in chunks if self._needs(PolicyRef(*k[:2]))}

    def _assemble(self, version: PolicyVersion) -> bytes | None:
        """Return a version's bytes; None while chunks are missing."""
        if version.num_chunks == 0:
            return version.tensors
        if version.num_chunks > len(self._chunks):
            return None  # whatever number anybody may have written there
        key = (version.epoch, version.version, version.slot)
        found = [self._chunks.get((*key, i)) for i in range(version.num_chunks)]
        parts = [part for part in found if part is not None]
        if sum(map(len, parts)) > MAX_POLICY_BYTES:
            raise PolicyRefused(f"tensors: expected at most {MAX_POLICY_BYTES} bytes")
        return b"".join(parts) if len(parts) == len(found) else None


def _same(graph: PolicyGraph, ours: PolicyGraph) -> bool:
    created_at_ms = ours.created_at_ms
    return replace(graph, epoch=ours.epoch, created_at_ms=created_at_ms) == ours


def _ref(version: PolicyVersion) -> PolicyRef:
    return PolicyRef(version.epoch, version.version)


def _key(ref: PolicyRef) -> tuple[int, int]:
    return ref.epoch, ref.version
