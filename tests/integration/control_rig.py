"""Experiments in the topic without anybody who runs them."""

import secrets
from contextlib import closing

import pytest

from infra.control.coordination import Coordination
from infra.control.deletion import clean_up
from infra.control.desired import Desired, PublishedExperiment
from infra.control.experiments import forget_experiment
from infra.control.launching import launch
from infra.control.statuses import publish_status
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import read_to_end
from infra.monitoring.summary import Summary
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import ExperimentSpec
from schemas.topics import EXPERIMENTS, topic_name
from tests.unit.test_experiment import values


class ControlRig:
    """A test's own experiments; all are deleted afterwards."""

    def __init__(self, settings):
        self.settings = settings
        self.sender = Sender(make_producer(settings, client_id="control-rig"))
        self.coordination = Coordination(settings)
        self.coordination.start(30.0)
        self.names = []

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
        for name in self.names:
            clean_up(self.settings, name)
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
