"""Environments that behave in known, good and bad, ways; importing registers them."""

from tests.unit.envs import drawn as drawn
from tests.unit.envs.tables import WRAPPERS as WRAPPERS
