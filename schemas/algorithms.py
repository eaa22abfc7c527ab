"""The built-in algorithms: what each learns from, and where it can act.

Learners, workers and whoever checks a spec must agree on it; what an algorithm computes
is the learner's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LearnsFrom = Literal["transitions", "sequences", "unrolls"]
"""transitions: single rows, drawn from a buffer by priority, again and again.
sequences: stretches of consecutive rows, likewise.
unrolls: whole unrolls in the order in which they come, each once: on-policy."""

ActionKind = Literal["discrete", "box"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What must be known of an algorithm outside of the learner.

    Attributes:
        learns_from: see LearnsFrom.
        actions: kinds of the one action field that it can fill.
        max_policy_lag: versions that experience may be behind, where the spec does not
            say; None: any number.
        reads: of the keys of ``spec.learner`` that not all algorithms read, those that
            it does; a part stands for all of its keys. None: nobody knows.
        needs_lstm: it makes no sense without recurrence.
    """

    learns_from: LearnsFrom
    actions: tuple[ActionKind, ...]
    max_policy_lag: int | None = None
    reads: frozenset[str] | None = None
    needs_lstm: bool = False

    @property
    def is_on_policy(self) -> bool:
        """Whether workers wait for a policy, and what is too old is not learnt from."""
        return self.learns_from == "unrolls"


_OF_VALUES = ("replay", "network.dueling", "double", "targetUpdatePeriod")
_OF_ACTOR_CRITICS = (
    "network.lstm",
    "network.separateValue",
    "policyGradient.entropyCost",
    "policyGradient.valueCost",
    "policyGradient.traceLambda",
)

BUILT_IN: dict[str, Traits] = {
    "dqn": Traits(
        "transitions", ("discrete",), reads=frozenset({*_OF_VALUES, "distribution"})
    ),
    "impala": Traits(
        "unrolls",
        ("discrete", "box"),
        max_policy_lag=20,
        reads=frozenset({*_OF_ACTOR_CRITICS, "impala"}),
    ),
    "ppo": Traits(
        "unrolls",
        ("discrete", "box"),
        max_policy_lag=1,
        reads=frozenset(
            {*_OF_ACTOR_CRITICS, "policyGradient.normaliseAdvantages", "ppo"}
        ),
    ),
    "r2d2": Traits(
        "sequences",
        ("discrete",),
        reads=frozenset({*_OF_VALUES, "network.lstm", "r2d2"}),
        needs_lstm=True,
    ),
    "sac": Traits("transitions", ("box",), reads=frozenset({"replay", "sac"})),
}
"""By the spec's ``learner.algorithm``."""

# Of a module of the machine's settings nothing is known here: the learner knows.
_UNKNOWN = Traits("transitions", ("discrete", "box"))

_READ_BY_SOME = frozenset().union(*(traits.reads or () for traits in BUILT_IN.values()))


def traits_of(algorithm: str) -> Traits:
    """Return the traits of an algorithm; of one that is not built in, what is usual."""
    return BUILT_IN.get(algorithm, _UNKNOWN)


def unread_keys(algorithm: str) -> list[str]:
    """Return the keys and parts of ``spec.learner`` that an algorithm never looks at.

    Of one that is not built in: none.
    """
    reads = traits_of(algorithm).reads
    return [] if reads is None else sorted(_READ_BY_SOME - reads)
