"""Requests of an administrator, asked again where no answer comes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from infra.errors import KafkaUnavailable
from infra.kafka.clients import make_admin
from infra.settings import Settings

ANSWER_S = 20.0
"""How long one answer is waited for."""

_TRIES = 3

Answer = TypeVar("Answer")


def ask(settings: Settings, request: Callable[[Any], Answer]) -> Answer:
    """Calls ``request(admin)``, and again with a new client where nobody answers.

    A broker that was away for a moment, or a client that has missed its answer, must
    not end who asks; so the request has to be one that may be repeated.

    Raises:
        KafkaUnavailable: No answer came, however often it was asked.
    """
    for _ in range(_TRIES):
        try:
            return request(make_admin(settings))
        except TimeoutError:
            continue
    raise KafkaUnavailable(
        f"the brokers did not answer an administrator's request within "
        f"{ANSWER_S:g} s, {_TRIES} times",
        "check that the brokers are well: `rollstream doctor`",
    )


def answer(future: Future[Any]) -> Any:
    """Returns what a request of an administrator was answered.

    Raises:
        TimeoutError: Nothing within `ANSWER_S`.
        KafkaException: It was refused.
    """
    return future.result(ANSWER_S)
