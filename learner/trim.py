"""Checkpoints -> the replay topic without what none of them needs."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.offsets import delete_before

INTERVAL_S = 30.0
_TIMEOUT_S = 10.0
_log = logging.getLogger("rollstream")


class Trimmer:
    """Deletes replay records below the oldest that the two newest checkpoints need."""

    def __init__(
        self, admin: AdminClient, topic: str, interval_s: float = INTERVAL_S
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._interval_s = interval_s
        self._needed: deque[Mapping[int, int]] = deque(maxlen=2)
        self._trimmed: dict[int, int] = {}
        self._trimmed_at = time.monotonic()

    def checkpointed(self, oldest_offsets: Mapping[int, int]) -> None:
        """Note the oldest offset by partition that a durable checkpoint needs."""
        self._needed.append(oldest_offsets)

    def targets(self) -> dict[int, int]:
        """Return the first offset to keep, where something new can go.

        Nothing before two checkpoints were written: the one from before a restart
        may still be the second newest.
        """
        if len(self._needed) < 2:
            return {}
        older, newer = self._needed
        return {
            partition: min(offset, newer[partition])
            for partition, offset in older.items()
            if partition in newer
            and min(offset, newer[partition]) > self._trimmed.get(partition, 0)
        }

    def trim(self, *, now_s: float | None = None) -> dict[int, int]:
        """Delete what can go, at most every 30 s; return the logs' new beginnings.

        A refusal is no reason to stop: retention by bytes deletes it in the end.
        """
        now_s = time.monotonic() if now_s is None else now_s
        targets = self.targets()
        if not targets or now_s - self._trimmed_at < self._interval_s:
            return {}
        self._trimmed_at = now_s
        request = {(self._topic, p): at for p, at in targets.items()}
        done = {}
        asked = delete_before(self._admin, request, _TIMEOUT_S)
        for (_, partition), future in asked.items():
            try:
                done[partition] = int(future.result(_TIMEOUT_S).low_watermark)
            except (KafkaException, TimeoutError) as exc:
                _log.warning("%s cannot be trimmed: %s", self._topic, exc)
                break
        self._trimmed.update(done)
        return done
