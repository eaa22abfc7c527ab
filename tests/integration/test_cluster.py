"""The life of the local cluster: started, shared, adopted, stopped, killed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from infra.cluster import external, lifecycle, service
from infra.cluster.local import LocalCluster, find_endpoints
from infra.cluster.state import new_state, read_state, state_file, write_state
from infra.errors import ClusterError, KafkaUnavailable
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import read_to_end
from infra.kafka.topic_admin import TopicConfig, ensure_topics

pytestmark = pytest.mark.kafka

TOPIC = "rollstream.kept"


def _send(settings, endpoints, value):
    at = settings.at(endpoints.bootstrap_servers, endpoints.zookeeper)
    ensure_topics(at, [TopicConfig(TOPIC, 1)])
    Sender(make_producer(at, client_id="test")).send_and_wait(TOPIC, value, "k")


def _values(settings, endpoints):
    at = settings.at(endpoints.bootstrap_servers, endpoints.zookeeper)
    return [message.value for message in read_to_end(at, TOPIC)]


def test_identity_ports_and_data_survive_a_stop(own):
    cluster = LocalCluster(own)
    first = cluster.start()
    _send(own, first, b"kept")
    cluster.release()
    assert find_endpoints(own) is None
    assert cluster.start() == first == find_endpoints(own)
    assert _values(own, first) == [b"kept"]
    cluster.release()


def test_services_listen_on_loopback_only_and_in_sessions_of_their_own(local_cluster):
    pids = local_cluster.pids()
    assert set(pids) == {"kafka", "zookeeper"}
    for pid in pids.values():
        connections = psutil.Process(pid).net_connections()
        listening = [c.laddr for c in connections if c.status == "LISTEN"]
        assert listening
        assert {address.ip for address in listening} <= {
            "127.0.0.1",
            "::ffff:127.0.0.1",
        }
        assert os.getsid(pid) == pid


def test_killed_services_come_back_as_they_were(own):
    with LocalCluster(own) as cluster:
        before, endpoints = cluster.pids(), find_endpoints(own)
        _send(own, endpoints, b"acknowledged")
        assert cluster.kill_zookeeper() == before["zookeeper"]
        assert cluster.pids() == {"kafka": before["kafka"]}
        cluster.restart_zookeeper()
        between = cluster.pids()
        assert between["zookeeper"] != before["zookeeper"]
        assert between["kafka"] == before["kafka"]
        assert cluster.kill_broker() == before["kafka"]
        assert cluster.pids() == {"zookeeper": between["zookeeper"]}
        cluster.restart_broker()
        assert cluster.pids()["kafka"] != before["kafka"]
        assert cluster.pids()["zookeeper"] == between["zookeeper"]
        assert find_endpoints(own) == endpoints
        assert _values(own, endpoints) == [b"acknowledged"]


def test_frozen_broker_is_replaced_at_start(own, monkeypatch):
    monkeypatch.setattr(lifecycle, "_ADOPT_TIMEOUT_S", 1.0)
    reports = []
    LocalCluster(own).start(keep=True)
    state = read_state(own.data_dir / "cluster")
    state_file(own.data_dir / "cluster").write_text(
        state.model_copy(update={"users": ()}).model_dump_json()
    )
    frozen = LocalCluster(own).pids()["kafka"]
    os.kill(frozen, signal.SIGSTOP)
    cluster = LocalCluster(own, report=reports.append)
    cluster.start()
    assert cluster.pids()["kafka"] != frozen
    assert any("does not answer" in line for line in reports)


def test_a_broker_that_ignores_the_stop_is_killed_at_its_deadline(own, monkeypatch):
    reports = []
    cluster = LocalCluster(own, report=reports.append)
    cluster.start()
    # It stays frozen, so SIGTERM cannot end it.
    os.kill(cluster.pids()["kafka"], signal.SIGSTOP)
    monkeypatch.setattr(lifecycle.signal, "SIGCONT", signal.SIGSTOP)
    cluster.release(2.0)
    assert cluster.pids() == {}
    # Three quarters of the time that there was, less what was spent until then.
    killed = re.search(r"kafka did not stop in ([\d.]+) s: killed", "\n".join(reports))
    assert killed and float(killed[1]) <= 1.5


def test_damaged_state_file_is_rebuilt_around_running_services(own):
    reports = []
    first = LocalCluster(own)
    endpoints, pids = first.start(), first.pids()
    path = state_file(own.data_dir / "cluster")
    path.write_text('{"cluster_id": 7')
    cluster = LocalCluster(own, report=reports.append)
    assert cluster.start() == endpoints
    assert cluster.pids() == pids
    assert any("state.json was damaged" in line for line in reports)
    assert path.with_suffix(".damaged").exists()


def test_removed_data_directory_takes_its_processes_with_it(own):
    cluster = LocalCluster(own)
    first, pids = cluster.start(), cluster.pids()
    # In one step: they still write, and a directory that fills cannot be removed.
    removed = (own.data_dir / "cluster").rename(own.data_dir / "removed")
    shutil.rmtree(removed, ignore_errors=True)
    fresh = LocalCluster(own)
    assert fresh.start().cluster_id != first.cluster_id
    assert not any(psutil.pid_exists(pid) for pid in pids.values())
    fresh.release()


def test_recycled_pid_is_never_signalled(own):
    cluster = LocalCluster(own)
    folder = own.data_dir / "cluster"
    folder.mkdir(parents=True)
    waits = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as bystander:
        state = new_state().model_copy(update={"kafka_pid": bystander.pid})
        write_state(folder, state)
        assert cluster.pids() == {}
        cluster.stop()
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


def test_taken_port_is_left_to_its_owner(own, monkeypatch):
    cluster = LocalCluster(own)
    first = cluster.start()
    cluster.release()
    host, port = first.bootstrap_servers.split(":")
    reports = []
    with socket.create_server((host, int(port))):
        moved = LocalCluster(own, report=reports.append)
        second = moved.start()
        assert second.bootstrap_servers != first.bootstrap_servers
        assert second.cluster_id == first.cluster_id
        assert any(f"port {port} is taken" in line for line in reports)
        moved.release()


def test_failed_start_says_why_and_leaves_nothing(own, left_running):
    metadata = own.data_dir / "cluster" / "kafka" / "data" / "meta.properties"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("version=1\ncluster.id=other\nnode.id=99\n")
    with pytest.raises(ClusterError, match=r"kafka ended while.*node.*To mend"):
        LocalCluster(own).start()
    assert left_running() == []


def test_full_disk_is_refused_before_anything_starts(own, left_running, monkeypatch):
    monkeypatch.setattr(service, "_MIN_FREE_BYTES", 2**60)
    with pytest.raises(ClusterError, match="MiB free, expected.*ROLLSTREAM_DATA_DIR"):
        LocalCluster(own).start()
    assert left_running() == []


def test_unusable_data_directory_is_named(own, tmp_path):
    (tmp_path / "file").touch()
    settings = own.model_copy(update={"data_dir": tmp_path / "file" / "data"})
    with pytest.raises(ClusterError, match="cannot be used.*ROLLSTREAM_DATA_DIR"):
        LocalCluster(settings).start()


def test_configured_kafka_is_used_and_only_zookeeper_started(cluster, own):
    settings = own.model_copy(update={"bootstrap_servers": cluster.bootstrap_servers})
    with LocalCluster(settings) as local:
        assert set(local.pids()) == {"zookeeper"}
        found = find_endpoints(settings)
        assert found.bootstrap_servers == cluster.bootstrap_servers
        assert found.cluster_id == cluster.cluster_id
        assert found.zookeeper != cluster.zookeeper


def test_configured_services_that_are_silent_are_named(own, cluster, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(external, "_TIMEOUT_S", 1.0)
        with pytest.raises(KafkaUnavailable, match="BOOTSTRAP_SERVERS: no broker"):
            LocalCluster(own.at("127.0.0.1:1", "127.0.0.1:1")).start()
    with pytest.raises(ClusterError, match="ROLLSTREAM_ZOOKEEPER: nothing listens"):
        LocalCluster(own.at(cluster.bootstrap_servers, "127.0.0.1:1")).start()


def test_path_with_spaces_and_umlauts_works(own, tmp_path):
    settings = own.model_copy(update={"data_dir": tmp_path / "Übung mit Daten"})
    with LocalCluster(settings) as local:
        _send(settings, find_endpoints(settings), b"value")
    assert local.pids() == {}
    assert (tmp_path / "Übung mit Daten/cluster/kafka/data" / f"{TOPIC}-0").is_dir()
