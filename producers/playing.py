"""A policy from the log -> greedy episodes in its experiment's environment, here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from infra.control.role import RoleContext
from infra.errors import RollstreamError
from producers.actors import Actors
from producers.drawing import Screen, SeenRecipe
from producers.env_slots import InProcess
from producers.environments import describe_environments, make_environments
from producers.evaluation import PlayedEpisode, play_episodes
from producers.guarded_env import Environments, SlotEnvironments
from producers.policy import Policy
from producers.seeding import StreamSeeds, play_seeds
from producers.watchdog import Watchdog
from schemas.records import PolicyGraph, PolicyVersion


class CannotPlay(RollstreamError):
    """The policy cannot act in this machine's environment."""


@dataclass(frozen=True)
class Episode:
    """An episode that was played.

    Attributes:
        return_: the sum of its rewards, raw.
        length: in steps.
        seed: that the environment was reset with; None: it resets itself.
    """

    return_: float
    length: int
    seed: int | None


@contextmanager
def playing(
    context: RoleContext,
    graph: PolicyGraph,
    version: PolicyVersion,
    screen: Screen,
    *,
    episodes: int,
    seed: int,
    on_row: Callable[[], object] = lambda: None,
) -> Iterator[Iterator[Episode]]:
    """Make the environment, and yield what yields each episode when it ends.

    Args:
        context: of the experiment; as whom it acts does not matter.
        graph: of the policy.
        version: of the policy, with its tensors inside.
        screen: is told of each row.
        episodes: how many.
        seed: of those: the same for any policy.
        on_row: called after each row, outside of the environment.

    Raises:
        EnvRefused, EnvFailed: the environment cannot be made, or fails for ever.
        CannotPlay: the policy is not of this environment, or damaged.
    """
    spec = context.spec.env
    with ExitStack() as closing:
        watchdog = Watchdog(spec.step_timeout_s)
        closing.callback(watchdog.close)
        environments, is_single = _make(context, screen, watchdog)
        closing.callback(environments.close)
        env = describe_environments(spec, environments, context.settings)
        actors = Actors(context, env, 1, greedy=True)
        actor = actors.make(_open(actors, graph, version))
        seeds = play_seeds(seed)

        def must_stop() -> bool:
            on_row()
            return screen.ended >= episodes

        found = play_episodes(environments, actor, seeds, must_stop)
        yield _first(found, episodes, seeds if is_single else None)


def _first(
    played: Iterator[PlayedEpisode], episodes: int, seeds: StreamSeeds | None
) -> Iterator[Episode]:
    for count, each in enumerate(played, 1):
        seed = seeds.episode(each.env, each.number) if seeds else None
        yield Episode(each.return_, each.length, seed)
        if count == episodes:
            return


def _make(
    context: RoleContext, screen: Screen, watchdog: Watchdog
) -> tuple[Environments, bool]:
    """Return one environment, and whether it is a single one, which we reset."""
    spec, settings = context.spec.env, context.settings
    recipe = SeenRecipe.on(spec, settings, screen)
    if recipe.registered().entry_point is not None:
        return SlotEnvironments([InProcess(recipe, 0, watchdog)], "sync"), True
    return make_environments(spec, 1, settings, watchdog), False


def _open(actors: Actors, graph: PolicyGraph, version: PolicyVersion) -> Policy:
    feed = actors.feed
    refusal = feed.take_graph(graph)
    feed.take_version(version)
    refusal = refusal or feed.load()
    if refusal is not None or feed.current is None:
        reason = refusal.reason if refusal else "no policy in it"
        raise CannotPlay(
            f"policy version {version.version} (epoch {version.epoch}): expected one "
            f"that acts in the environment of this machine, found: {reason}",
            "check that ROLLSTREAM_ENV_MODULES and the environment's version are those "
            "of the workers",
        )
    return feed.current
