"""Several processes on one cluster: the last to leave stops it."""

import os
import subprocess
import sys

import pytest

from infra.cluster.local import LocalCluster

pytestmark = pytest.mark.kafka

# Another user of the cluster: starts, says so, and releases when told (or is killed).
USER = """
import sys
from infra.cluster.local import LocalCluster
from infra.settings import load_settings
cluster = LocalCluster(load_settings())
print(cluster.start(), flush=True)
sys.stdin.readline()
cluster.release()
print(cluster.pids(), flush=True)
"""


@pytest.fixture
def start_user(own):
    """Starts other processes that use the cluster."""
    users = []

    def start():
        user = subprocess.Popen(
            [sys.executable, "-c", USER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        users.append(user)
        assert "bootstrap_servers" in user.stdout.readline()
        return user

    yield start
    for user in users:
        user.kill()
        user.communicate()


def test_last_user_stops_what_two_share(own, start_user):
    cluster = LocalCluster(own)
    cluster.start()
    pids = cluster.pids()
    other = start_user()
    assert cluster.pids() == pids
    cluster.release()
    assert cluster.pids() == pids
    out, _ = other.communicate("go\n", timeout=200.0)
    assert out.strip() == "{}"
    assert cluster.pids() == {}


def test_killed_user_has_no_lease_and_leaves_services_to_adopt(own, start_user):
    user = start_user()
    pids = LocalCluster(own).pids()
    user.kill()
    user.wait()
    assert LocalCluster(own).pids() == pids
    cluster = LocalCluster(own)
    cluster.start()
    assert cluster.pids() == pids
    cluster.release()
    assert cluster.pids() == {}


def test_kept_cluster_stays_until_it_is_stopped(own):
    keeper = LocalCluster(own)
    keeper.start(keep=True)
    keeper.release()
    pids = keeper.pids()
    assert set(pids) == {"kafka", "zookeeper"}
    with LocalCluster(own) as user:
        assert user.pids() == pids
    assert keeper.pids() == pids
    keeper.stop()
    assert keeper.pids() == {}
