"""Alerting that is played, for the tests beside."""

from __future__ import annotations

import pytest

from infra.monitoring.alert_states import Alert
from tests.unit.alerting.rig import Played, playing


@pytest.fixture
def on() -> list[Alert]:
    """What the events say is on already."""
    return []


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, on: list[Alert]) -> Played:
    return playing(monkeypatch, on)
