"""The topics of an experiment -> its policies and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from infra.control.desired import PublishedExperiment
from infra.control.experiments import read_experiment
from infra.kafka.reading import Message
from infra.kafka.whole_topic import WholeTopic
from infra.policies.evaluations import Evaluations
from infra.policies.shelf import Shelf
from infra.settings import Settings
from schemas.topics import METRICS, POLICIES, POLICY_HISTORY, Topic, topic_name


class PolicyTopics:
    """Follows what there is of one run's policies; nobody else need be there.

    Attributes:
        published: the experiment, of the run in force when it was opened.
        shelf: its policies, as of the last ``read``.
        evaluations: how good they are; empty unless it follows the metrics.
    """

    def __init__(
        self, settings: Settings, experiment: str, *, with_metrics: bool = False
    ) -> None:
        """Open them.

        Raises:
            UnknownExperiment: there is no such experiment.
        """
        self.published = read_experiment(settings, experiment)
        run_id = self.published.run_id
        self.shelf = shelf = Shelf(run_id)
        self.evaluations = told = Evaluations(run_id)
        self._followed: list[tuple[WholeTopic, Callable[[Message], None]]] = []

        def follow(
            topic: Topic, take: Callable[[Message], None], forget: Callable[[], None]
        ) -> None:
            name, who = topic_name(topic, experiment), f"{experiment}-policies"
            whole = WholeTopic(settings, name, who, forget)
            self._followed.append((whole, take))

        if with_metrics:
            follow(METRICS, told.take, told.forget)
        follow(POLICY_HISTORY, shelf.take_history, shelf.forget_history)
        follow(POLICIES, shelf.take_policy, shelf.forget_policies)

    def read(self) -> None:
        """Take in all that there is by now.

        The topic of policies last: a version that is in none of them has come since.

        Raises:
            KafkaUnavailable: the brokers do not answer.
            TopicError: a topic cannot be read.
        """
        for topic, take in self._followed:
            for message in topic.to_end():
                take(message)

    def close(self) -> None:
        """Leave the topics."""
        for topic, _ in self._followed:
            topic.close()


def read_shelf(
    settings: Settings, experiment: str
) -> tuple[PublishedExperiment, Shelf]:
    """Return an experiment in force and the policies of its run; raises as above."""
    with closing(PolicyTopics(settings, experiment)) as topics:
        topics.read()
        return topics.published, topics.shelf
