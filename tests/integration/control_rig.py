"""Experiments in the topic without anybody who runs them."""

import secrets
import time
from contextlib import closing

import pytest

from infra.control.coordination import Coordination
from infra.control.deletion import Belongings, _groups, _remove
from infra.control.desired import Desired, PublishedExperiment
from infra.control.experiments import forget_experiment
from infra.control.launching import launch
from infra.control.statuses import publish_status
from infra.kafka.clients import make_admin, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key, read_to_end
from infra.kafka.topic_description import cluster_metadata
from infra.monitoring.live import live_agents
from infra.monitoring.summary import Summary
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import ExperimentSpec
from schemas.topics import EXPERIMENTS, PREFIX, STATUS, topic_name
from tests.unit.test_experiment import values

PATIENCE_S = 60.0
# The longest that ZooKeeper grants: a machine that stands still takes nothing away.
SESSION_S = 20.0


class ControlRig:
    """A test's own experiments; all are deleted afterwards."""

    def __init__(self, settings):
        self.settings = settings
        self.sender = Sender(make_producer(settings, client_id="control-rig"))
        self.names = []
        self.coordination = Coordination(settings, SESSION_S)
        self.coordination.start(PATIENCE_S)

    def spec(self, name=None, **overrides):
        name = name or f"control-{secrets.token_hex(4)}"
        self.names.append(name)
        overrides = {"spec__topics__partitions": 1, **overrides}
        return from_values(values(metadata__name=name, **overrides))

    def launch(self, experiment, fresh=False):
        return launch(self.settings, self.coordination, experiment, fresh)

    def publish(self, experiment, replaces, run_id="run1", by="agents"):
        """A record as anybody may write it."""
        record = ExperimentSpec(
            experiment.name, run_id, experiment.to_json(), replaces, 0, by
        )
        return self.sender.send_and_wait(
            topic_name(EXPERIMENTS), encode(record), experiment.name
        )

    def wait_until_no_agent_lives(self):
        """Those that other tests have killed are seen until their sessions end."""
        deadline_s = time.monotonic() + PATIENCE_S
        while live_agents(self.coordination):
            assert time.monotonic() < deadline_s, "an agent is left"
            time.sleep(0.1)

    def messages(self, name):
        topic = topic_name(EXPERIMENTS)
        return [m for m in read_to_end(self.settings, topic) if m.key == name]

    def in_force(self, name):
        """All that were ever in force, in order; and the entry."""
        desired, found = Desired(), []
        for message in self.messages(name):
            desired.apply(message)
            known = desired.of(name).accepted
            if known is not None and known.offset == message.offset:
                found.append(known)
        return found, desired.of(name)

    def finish(self, published: PublishedExperiment):
        name = published.experiment.name
        publish_status(self.sender, published, "finished", "enough", summary(name))

    def close(self):
        self.coordination.close()
        # All at once: some tests have a hundred.
        names = cluster_metadata(make_admin(self.settings)).topics
        if topic_name(EXPERIMENTS) not in names:
            return  # nobody has launched anything
        ours = tuple(f"{PREFIX}{name}." for name in self.names)
        keys = latest_by_key(self.settings, topic_name(STATUS))
        left = Belongings(
            tuple(each for each in names if each.startswith(ours)),
            tuple(each for each in _groups(self.settings) if each.startswith(ours)),
            tuple(each for each in keys if each.partition("/")[0] in self.names),
        )
        _remove(self.settings, left, lambda line: None)
        for name in self.names:
            forget_experiment(self.sender, name)


def summary(name):
    return Summary(
        experiment=name, state="finished", env_steps=7_000, updates=7,
        policy_version=3, eval_return_mean=480.5, lost_steps=0, recovered_steps=0,
        duplicate_steps=0, unrestorable_rows=0, dead_letters=0, undelivered_steps=0,
        wall_s=1.0, env_steps_per_s=7.0, resumed=False, reached=True, reason="enough",
    )  # fmt: skip


@pytest.fixture
def rig(settings):
    with closing(ControlRig(settings)) as rig:
        yield rig
