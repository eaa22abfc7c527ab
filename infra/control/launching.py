"""An experiment, or a change to one -> the topic, so that no change is lost.

Writers do not wait for each other: each reads, edits, publishes what it read as
replaced, and reads back whether it was accepted; if not, it begins again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from infra.control.coordination import AlreadyRuns, Coordination
from infra.control.desired import Entry, PublishedExperiment, SpecFollower
from infra.control.experiments import (
    in_force,
    new_run_id,
    publish_experiment,
    restore,
)
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.control.statuses import publish_status, read_summary
from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.settings import Settings
from schemas.experiment import Experiment
from schemas.resume import check_resumable

_TRIES = 30
_LONGEST_PAUSE_S = 1.0

Edit = Callable[[Experiment], Experiment]


class Contended(RollstreamError):
    """Others change the experiment so often that our change never came first."""


class NotLaunched(RollstreamError):
    """The experiment belongs to `rollstream run`, which does not follow changes."""


@dataclass(frozen=True)
class Wanted:
    """What a writer wants to be in force."""

    experiment: Experiment
    run_id: str
    managed_by: str


@dataclass(frozen=True)
class Launched:
    """What is in force, and whether that is new."""

    published: PublishedExperiment
    changed: bool


class SpecWriter:
    """Publishes specs of one name; reads the topic once, and then what comes.

    Attributes:
        sender: what it publishes with.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name
        self._follower = SpecFollower(settings, only=name)
        self.sender = Sender(
            make_producer(settings, client_id=f"{name}-specs", traffic=Traffic.CONTROL)
        )
        self._refused: set[int] = set()  # offsets of ours

    def read(self) -> Entry:
        """Return what the topic says now."""
        self._follower.read_to_end()
        return self._follower.desired.of(self.name)

    def write(self, decide: Callable[[Entry], Wanted], again: bool = False) -> Launched:
        """Bring in force what ``decide`` makes of what is; what it raises is raised.

        Unless ``again``, what is in force already is not published anew.

        1. Read to the end, and decide.
        2. Nothing to change: done.
        3. Publish, naming the newest record as the one replaced.
        4. Read back: accepted: done. Refused, for another was first: begin again.

        Raises:
            Contended: another was first each time.
            SpecError: it does not fit the run so far.
            DeliveryError: it is not known whether it arrived.
        """
        try:
            for attempt in range(_TRIES):
                entry = self.read()
                wanted = decide(entry)
                known = entry.accepted
                if known is not None and _same(known, wanted) and not again:
                    return Launched(known, False)
                if known is not None and known.run_id == wanted.run_id:
                    check_resumable(known.experiment, wanted.experiment)
                published = publish_experiment(
                    self.sender,
                    wanted.experiment,
                    wanted.run_id,
                    entry.newest_offset,
                    wanted.managed_by,
                )
                if self._is_accepted(published):
                    return Launched(published, True)
                self._refused.add(published.offset)
                pause_s = min(_LONGEST_PAUSE_S, 0.01 * 2.0**attempt)
                time.sleep(pause_s * random.random())
        finally:
            self._restore()
        raise Contended(
            f"experiment {self.name}: expected to be first once in {_TRIES} tries, "
            "found that others changed it each time",
            "see who does, and try again",
        )

    def change(self, edit: Edit, again: bool = False) -> Launched:
        """Change the spec in force of a launched experiment; its run goes on.

        ``edit`` is called again when another change came first. With ``again`` the same
        spec is published anew: roles that were given up are tried once more.

        Raises:
            UnknownExperiment, UnreadableExperiment: there is nothing to change.
            NotLaunched: `rollstream run` published it.
            SpecError: what ``edit`` returns does not fit the run so far.
            Contended, DeliveryError: as of ``write``.
        """

        def decide(entry: Entry) -> Wanted:
            known = in_force(self.name, entry)
            if known.managed_by != "agents":
                raise NotLaunched(
                    f"experiment {self.name}: expected a launched one, found one of "
                    "`rollstream run`",
                    "stop that with Ctrl-C where it runs; `rollstream launch FILE` "
                    "hands it to the agents",
                )
            return Wanted(edit(known.experiment), known.run_id, known.managed_by)

        return self.write(decide, again)

    def close(self) -> None:
        """Leave the topic."""
        self._follower.close()

    def _restore(self) -> None:
        # A refused record of ours may be the newest: compaction would keep it. Those
        # of others are theirs: who mends them too only gets in their way.
        while self._refused:
            refused = self.read().refused
            if refused is None or refused.offset not in self._refused:
                return
            offset = restore(
                self.sender, self.name, self._follower.desired.of(self.name)
            )
            if offset is not None:
                self._refused.add(offset)

    def _is_accepted(self, published: PublishedExperiment) -> bool:
        accepted = False
        for message in self._follower.to_end():
            if message.offset == published.offset:
                known = self._follower.desired.of(self.name).accepted
                accepted = known is not None and known.offset == published.offset
        return accepted


def change(settings: Settings, name: str, edit: Edit, again: bool = False) -> Launched:
    """Change the spec in force of a launched experiment; see `SpecWriter.change`."""
    with closing(SpecWriter(settings, name)) as writer:
        return writer.change(edit, again)


def launch(
    settings: Settings,
    coordination: Coordination,
    experiment: Experiment,
    fresh: bool = False,
) -> Launched:
    """Hand an experiment to the agents; the same spec again changes nothing.

    Topics are created first, where they are missing.

    Args:
        settings: where the cluster is.
        coordination: started.
        experiment: what it has to be.
        fresh: start over under a new run id; else a run that there is goes on.

    Raises:
        AlreadyRuns: a foreground run has claimed it.
        SpecError: a run that there is cannot go on as that.
        UnreadableExperiment: all specs that there are were refused, and not ``fresh``.
    """
    name = experiment.name

    def decide(entry: Entry) -> Wanted:
        refuse_claimed(coordination, name)
        return next_spec(entry, experiment, "agents", fresh)

    refuse_claimed(coordination, name)
    ensure_shared_topics(settings)
    with closing(SpecWriter(settings, name)) as writer:
        decide(writer.read())  # before topics are made for what is refused
        ensure_experiment_topics(settings, experiment)
        launched = writer.write(decide)
        if launched.changed:
            _unfinish(settings, writer.sender, launched.published)
        return launched


def _unfinish(
    settings: Settings, sender: Sender, published: PublishedExperiment
) -> None:
    # What is finished is not started again, unless its goal is another now.
    done = read_summary(settings, published.experiment.name, published.run_id)
    if done is not None:
        # With its figures: the time that it took so far counts on.
        why = "launched again as another spec"
        publish_status(sender, published, "pending", why, done)


def next_spec(
    entry: Entry, experiment: Experiment, managed_by: str, fresh: bool
) -> Wanted:
    """Return what a writer wants where an experiment is to run as it is written.

    A run that there is goes on; else, or when ``fresh``, a new one begins.

    Raises:
        SpecError: the run cannot go on as that.
        UnreadableExperiment: all specs that there are were refused, and not ``fresh``.
    """
    is_new = entry.deleted or (entry.accepted is None and entry.refused is None)
    if fresh or is_new:
        return Wanted(experiment, new_run_id(), managed_by)
    known = in_force(experiment.name, entry)
    check_resumable(known.experiment, experiment)
    return Wanted(experiment, known.run_id, managed_by)


def refuse_claimed(coordination: Coordination, name: str) -> None:
    """Raise AlreadyRuns when a foreground run has claimed an experiment."""
    holder = coordination.claimed_by(name)
    if holder is not None:
        raise AlreadyRuns(
            f"experiment {name}: expected nobody to run it, found `rollstream run` on "
            f"{holder.get('host')}, pid {holder.get('pid')}",
            "stop that one with Ctrl-C, or give this experiment another name",
        )


def _same(known: PublishedExperiment, wanted: Wanted) -> bool:
    return (
        known.run_id == wanted.run_id
        and known.managed_by == wanted.managed_by
        and known.experiment.to_json() == wanted.experiment.to_json()
    )
