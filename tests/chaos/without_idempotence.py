"""Imported by workers: their producers may double what they send again.

With it a run must fail the checks that it passes otherwise.
"""

from __future__ import annotations

from typing import Any

from infra.kafka import clients
from infra.kafka.clients import Traffic
from infra.settings import Settings

_producer_config = clients.producer_config


def _careless(
    settings: Settings, client_id: str, traffic: Traffic = Traffic.BULK
) -> dict[str, Any]:
    config = _producer_config(settings, client_id, traffic)
    return config | {"enable.idempotence": False}


clients.producer_config = _careless
