"""What a leader does to topics for good: only while nobody else can lead."""

from __future__ import annotations

from collections.abc import Callable

from kazoo.exceptions import KazooException

from infra.control.election import Leadership
from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.settings import Settings


class DurableActs:
    """Wraps actions, and has the sender that they need; a term's.

    No transaction of ZooKeeper fences a topic, so what is done to one is asked for by
    the newest spec, and harms nobody when it is done twice.
    """

    def __init__(self, settings: Settings, leadership: Leadership) -> None:
        self.settings = settings
        self.leadership = leadership
        self._sender: Sender | None = None

    @property
    def sender(self) -> Sender:
        """Delivers or raises; made when it is first needed."""
        if self._sender is None:
            self._sender = Sender(
                make_producer(
                    self.settings, client_id="leader", traffic=Traffic.CONTROL
                )
            )
        return self._sender

    def while_leading(self, action: Callable[[], object]) -> Callable[[], None]:
        """Return the action that refuses to begin when another may lead by now."""

        def act() -> None:
            if not self.leadership.is_sure:
                raise RollstreamError("it is not sure that this agent still leads")
            try:
                action()
            except KazooException as exc:
                raise RollstreamError(f"ZooKeeper is away: {exc!r}") from exc

        return act
