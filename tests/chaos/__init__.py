"""Fault tests: roles and brokers are killed and frozen, and a checker that stands apart
judges what is left. See `tests.chaos.harness`."""
