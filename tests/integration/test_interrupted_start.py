"""Ctrl-C between a start and its lease: nothing is left without an owner."""

from types import SimpleNamespace

import pytest

from infra.cluster import local
from infra.cluster.local import LocalCluster

pytestmark = pytest.mark.kafka


def interrupted(*_):
    raise KeyboardInterrupt


def test_ctrl_c_when_all_runs_and_nobody_has_a_lease_yet(
    own, left_running, monkeypatch
):
    monkeypatch.setattr(local, "User", SimpleNamespace(this_process=interrupted))
    with pytest.raises(KeyboardInterrupt):
        LocalCluster(own).start()
    assert left_running() == []


def test_ctrl_c_when_the_lease_is_taken_and_the_block_not_entered(
    own, left_running, monkeypatch
):
    monkeypatch.setattr(local, "_endpoints", interrupted)
    with pytest.raises(KeyboardInterrupt), LocalCluster(own):
        pytest.fail("expected an interrupt before the block")
    assert left_running() == []
