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
        needs_lstm: it makes no sense without recurrence.
        may_have_lstm: it can learn with recurrence.
    """

    learns_from: LearnsFrom
    actions: tuple[ActionKind, ...]
    max_policy_lag: int | None = None
    needs_lstm: bool = False
    may_have_lstm: bool = False

    @property
    def is_on_policy(self) -> bool:
        """Whether workers wait for a policy, and what is too old is not learnt from."""
        return self.learns_from == "unrolls"


BUILT_IN: dict[str, Traits] = {
    "dqn": Traits("transitions", ("discrete",)),
    "impala": Traits(
        "unrolls", ("discrete", "box"), max_policy_lag=20, may_have_lstm=True
    ),
    "ppo": Traits("unrolls", ("discrete", "box"), max_policy_lag=1, may_have_lstm=True),
    "r2d2": Traits("sequences", ("discrete",), needs_lstm=True, may_have_lstm=True),
    "sac": Traits("transitions", ("box",)),
}
"""By the spec's ``learner.algorithm``."""

# Of a module of the machine's settings nothing is known here: the learner knows.
_UNKNOWN = Traits("transitions", ("discrete", "box"), may_have_lstm=True)


def traits_of(algorithm: str) -> Traits:
    """Return the traits of an algorithm; of one that is not built in, what is usual."""
    return BUILT_IN.get(algorithm, _UNKNOWN)
