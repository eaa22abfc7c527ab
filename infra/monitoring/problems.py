"""What went wrong while the brokers were asked -> words for whoever watches."""

from __future__ import annotations

from confluent_kafka import KafkaException

from infra.errors import RollstreamError


def in_words(exc: Exception) -> str:
    """Return what is told of it; of what nobody expected, its type as well."""
    if isinstance(exc, RollstreamError):
        return exc.problem
    if isinstance(exc, KafkaException):
        return str(exc.args[0].str())
    if isinstance(exc, TimeoutError):
        return "the brokers do not answer"
    return f"{type(exc).__name__}: {exc}"
