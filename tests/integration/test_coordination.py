import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from infra.control.coordination import AlreadyRuns, Coordination
from infra.control.znodes import role_path
from infra.errors import RollstreamError
from infra.settings import Settings

pytestmark = pytest.mark.kafka


@pytest.fixture
def make_coordination(settings):
    opened = []

    def make():
        coordination = Coordination(settings)
        coordination.start()
        opened.append(coordination)
        return coordination

    yield make
    for coordination in opened:
        coordination.close()


def wait_for(condition, timeout_s=60.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within the time"
        time.sleep(0.02)


def test_an_agent_and_its_roles_are_seen_and_vanish_with_it(make_coordination):
    agent, watcher = make_coordination(), make_coordination()
    agent.register_agent()
    agent.register_role("seen", "worker/0", 41)
    agent.register_role("seen", "worker/0", 42)
    assert watcher.agents()[agent.name]["pid"] > 0
    assert watcher.live_roles("seen") == {"worker-0": {"agent": agent.name, "pid": 42}}
    agent.close()
    assert agent.name not in watcher.agents()
    assert watcher.live_roles("seen") == {}


def test_a_role_that_ended_is_forgotten_also_by_a_new_session(make_coordination):
    agent, watcher = make_coordination(), make_coordination()
    agent.register_role("ended", "worker/0", 41)
    agent.register_role("ended", "worker/1", 42)
    agent.forget_role("ended", "worker/0")
    assert watcher.live_roles("ended").keys() == {"worker-1"}
    assert role_path("ended", "worker/0") not in agent._nodes, "agents see many"
    expire(agent)
    wait_for(lambda: "worker-1" in watcher.live_roles("ended"))
    assert watcher.live_roles("ended").keys() == {"worker-1"}
    agent.register_role("ended", "worker/0", 43)
    assert watcher.live_roles("ended")["worker-0"]["pid"] == 43


def test_only_one_runs_an_experiment(make_coordination):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment("claimed")
    with pytest.raises(AlreadyRuns, match="expected nobody to run it, found"):
        second.claim_experiment("claimed", wait_s=0.2)


def test_a_claim_that_is_let_go_passes_to_who_waits(make_coordination):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment("passed-on")
    threading.Timer(0.3, first.close).start()
    second.claim_experiment("passed-on", wait_s=60.0)


def test_a_claim_is_to_be_had_again_though_answers_were_lost(
    settings, make_coordination, monkeypatch
):
    """8 claim it and let it go; of one try in five the answer never comes."""
    create, numbers, holders = KazooClient.create, itertools.count(), []

    def create_unheard(client, path, *args, **options):
        created = create(client, path, *args, **options)
        if path.startswith("/rollstream/runs/") and next(numbers) % 5 == 4:
            raise ConnectionLoss
        return created

    def claim_and_let_go():
        with closing(Coordination(settings)) as coordination:
            coordination.start(30.0)
            try:
                coordination.claim_experiment("contended", wait_s=0.5)
            except AlreadyRuns:
                return False
            holders.append(coordination)
            assert holders == [coordination], "two at once"
            holders.clear()
            return True

    monkeypatch.setattr(KazooClient, "create", create_unheard)
    with ThreadPoolExecutor(8) as pool:
        tries = [pool.submit(claim_and_let_go) for _ in range(24)]
        assert any([each.result() for each in tries])
    assert next(numbers) > 5
    monkeypatch.undo()
    make_coordination().claim_experiment("contended", wait_s=0.0)


def test_what_was_registered_comes_back_with_a_new_session(make_coordination):
    agent, watcher = make_coordination(), make_coordination()
    agent.register_role("expired", "learner/0", 7)
    expire(agent)
    wait_for(lambda: watcher.live_roles("expired").get("learner-0", {}).get("pid") == 7)


def expire(coordination):
    """End a session as ZooKeeper does: a second client takes it over and closes it."""
    client = coordination._client
    session = client.client_id[0]
    thief = KazooClient(hosts=client.hosts[0][0] + f":{client.hosts[0][1]}",
                        client_id=client.client_id)  # fmt: skip
    thief.start()
    thief.stop()
    thief.close()
    wait_for(lambda: client.client_id is not None and client.client_id[0] != session)


def test_a_claim_that_another_took_meanwhile_is_theirs(make_coordination):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment("taken-over")
    second.name = "another"
    first._client.delete("/rollstream/runs/taken-over")
    second._client.create("/rollstream/runs/taken-over", b'{"host": "x"}')
    expire(first)
    assert first.lost_claim.wait(60)
    assert second._read("/rollstream/runs/taken-over")["host"] == "x"


def test_a_claim_comes_back_with_a_new_session(make_coordination):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment("kept")
    expire(first)
    path = "/rollstream/runs/kept"
    session = first._client.client_id[0]
    wait_for(lambda: (s := second._client.exists(path)) and s.ephemeralOwner == session)
    assert not first.lost_claim.is_set()


def test_without_zookeeper_the_error_says_what_to_do(tmp_path):
    nowhere = Settings(data_dir=tmp_path, zookeeper="127.0.0.1:9")
    with pytest.raises(RollstreamError, match="rollstream doctor"):
        Coordination(nowhere).start(timeout_s=0.5)
