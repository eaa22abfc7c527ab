"""What can be wrong with a policy that is asked for."""

from infra.errors import RollstreamError


class NoPolicy(RollstreamError):
    """There is no policy of that name, or none at all."""


class PolicyGone(NoPolicy):
    """The version was there once, or is not there yet; others are."""


class PolicyDamaged(RollstreamError):
    """What the topic holds is not what was published."""


def replaced(where: object, what: str) -> PolicyGone:
    """Return the error of who finds something else at an address, or nothing."""
    return PolicyGone(
        f"{where}: expected {what}, found it gone: a newer one has taken its place "
        "since",
        "try again",
    )
