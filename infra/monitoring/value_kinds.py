"""Which values in metrics count something, and which measure it; pure."""

from __future__ import annotations

from collections.abc import Mapping

COUNTERS: Mapping[str, frozenset[str]] = {
    "worker": frozenset({
        "env_steps", "invalid_steps", "unrolls", "bytes", "waited_credit_s",
        "waited_delivery_s", "undelivered_steps", "dead_letters", "vector_steps",
        "usable_steps", "unusable_steps", "env_restarts", "policies_adopted",
    }),
    "processor": frozenset({
        "unrolls", "late_records", "holes", "repeated_records", "batches", "env_steps",
        "dead_letters", "expired_records",
    }),
    "learner": frozenset({
        "env_steps", "samples", "duplicate_steps", "unrestorable_rows", "dead_letters",
        "foreign_batches", "expired_records", "corrupt_records", "nonfinite_losses",
        "batches", "blank_batches", "lost_steps", "recovered_steps", "dropped_rows",
        "updates", "published", "checkpoints", "waited_data_s",
    }),
    "evaluator": frozenset({
        "episodes", "vector_steps", "usable_steps", "env_restarts",
    }),
    "replayer": frozenset({
        "records", "env_steps", "blank_steps", "bytes", "repeated_records",
    }),
    "archiver": frozenset({"records", "env_steps", "bytes", "repeats", "gap_records"}),
}  # fmt: skip
"""Of each role, those that only grow while a process lives.

A learner's go on from its checkpoint after a restart, which may be behind; those of
others begin at 0.
"""
