"""Small networks for tests."""

from schemas.experiment import NetworkSpec


def network_spec(**changes):
    values = {"hidden": (8,)} | changes
    return NetworkSpec(**values)
