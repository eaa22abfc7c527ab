import itertools
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from infra.control.coordination import AlreadyRuns, Coordination
from infra.control.znodes import RUNS, role_path
from infra.errors import RollstreamError
from infra.settings import Settings
from tests.integration.control_rig import SESSION_S

pytestmark = pytest.mark.kafka

PATIENCE_S = 60.0


@pytest.fixture
def make_coordination(settings):
    with ExitStack() as opened:

        def make():
            coordination = Coordination(settings, SESSION_S)
            coordination.name = f"test-{secrets.token_hex(4)}"
            opened.callback(coordination.close)
            coordination.start(PATIENCE_S)
            return coordination

        yield make


@pytest.fixture
def name():
    """An experiment of no other test, and no earlier run of this one."""
    return f"zk-{secrets.token_hex(4)}"


def wait_for(condition, timeout_s=PATIENCE_S):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within the time"
        time.sleep(0.02)


def test_an_agent_and_its_roles_are_seen_and_vanish_with_it(make_coordination, name):
    agent, watcher = make_coordination(), make_coordination()
    agent.register_agent()
    agent.register_role(name, "worker/0", 41)
    agent.register_role(name, "worker/0", 42)
    # What a lost answer prevents is done later.
    wait_for(lambda: watcher.agents().get(agent.name, {}).get("pid", 0) > 0)
    seen = {"worker-0": {"agent": agent.name, "pid": 42}}
    wait_for(lambda: watcher.live_roles(name) == seen)
    agent.close()
    wait_for(lambda: agent.name not in watcher.agents())
    wait_for(lambda: watcher.live_roles(name) == {})


def test_a_role_that_ended_is_forgotten_also_by_a_new_session(make_coordination, name):
    agent, watcher = make_coordination(), make_coordination()
    agent.register_role(name, "worker/0", 41)
    agent.register_role(name, "worker/1", 42)
    agent.forget_role(name, "worker/0")
    wait_for(lambda: watcher.live_roles(name).keys() == {"worker-1"})
    gone = role_path(name, "worker/0")
    wait_for(lambda: gone not in agent._nodes)  # agents see many
    expire(agent)
    wait_for(lambda: "worker-1" in watcher.live_roles(name))
    assert watcher.live_roles(name).keys() == {"worker-1"}
    agent.register_role(name, "worker/0", 43)
    wait_for(lambda: watcher.live_roles(name).get("worker-0", {}).get("pid") == 43)


def test_only_one_runs_an_experiment(make_coordination, name):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment(name)
    with pytest.raises(AlreadyRuns, match="expected nobody to run it, found"):
        second.claim_experiment(name, wait_s=0.2)


def test_a_claim_that_is_let_go_passes_to_who_waits(make_coordination, name):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment(name)
    letting_go = threading.Timer(0.3, first.close)
    letting_go.start()
    # Also where the goodbye is lost, and the session has to end by itself.
    second.claim_experiment(name, wait_s=PATIENCE_S)
    letting_go.join()


def test_a_claim_is_to_be_had_again_though_answers_were_lost(
    settings, make_coordination, monkeypatch, name
):
    """8 claim it and let it go; of one try in five the answer never comes."""
    create, numbers, holders = KazooClient.create, itertools.count(), []

    def create_unheard(client, path, *args, **options):
        created = create(client, path, *args, **options)
        if path == f"{RUNS}/{name}" and next(numbers) % 5 == 4:
            raise ConnectionLoss
        return created

    def claim_and_let_go():
        with closing(Coordination(settings, SESSION_S)) as coordination:
            coordination.start(PATIENCE_S)
            try:
                coordination.claim_experiment(name, wait_s=0.5)
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
    make_coordination().claim_experiment(name, wait_s=PATIENCE_S)


def test_what_was_registered_comes_back_with_a_new_session(make_coordination, name):
    agent, watcher = make_coordination(), make_coordination()
    agent.register_role(name, "learner/0", 7)
    expire(agent)
    wait_for(lambda: watcher.live_roles(name).get("learner-0", {}).get("pid") == 7)


def expire(coordination):
    """End a session as ZooKeeper does: a second client takes it over and closes it."""
    client = coordination._client
    wait_for(lambda: client.client_id is not None)
    known = client.client_id

    def is_another():
        return client.client_id is not None and client.client_id[0] != known[0]

    deadline_s = time.monotonic() + PATIENCE_S
    while not is_another():  # its owner may have taken it back before it was closed
        assert time.monotonic() < deadline_s, "the session does not end"
        thief = KazooClient(hosts="{}:{}".format(*client.hosts[0]), client_id=known)
        with closing(thief), suppress(KazooTimeoutError):
            thief.start()
            thief.stop()
        again_s = time.monotonic() + 5.0
        while not is_another() and time.monotonic() < again_s:
            time.sleep(0.02)


def test_a_claim_that_another_took_meanwhile_is_theirs(make_coordination, name):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment(name)
    first._client.delete(f"{RUNS}/{name}")
    second._client.create(f"{RUNS}/{name}", b'{"host": "x"}')
    expire(first)
    assert first.lost_claim.wait(PATIENCE_S)
    assert second._read(f"{RUNS}/{name}")["host"] == "x"
    second._client.delete(f"{RUNS}/{name}")


def test_a_claim_comes_back_with_a_new_session(make_coordination, name):
    first, second = make_coordination(), make_coordination()
    first.claim_experiment(name)
    expire(first)

    def is_back():
        found = second._client.exists(f"{RUNS}/{name}")
        ours = first._client.client_id
        return found and ours and found.ephemeralOwner == ours[0]

    wait_for(is_back)
    assert not first.lost_claim.is_set()


def test_without_zookeeper_the_error_says_what_to_do(tmp_path):
    nowhere = Settings(data_dir=tmp_path, zookeeper="127.0.0.1:9")
    with closing(Coordination(nowhere)) as coordination:
        with pytest.raises(RollstreamError, match="rollstream doctor"):
            coordination.start(timeout_s=0.5)
