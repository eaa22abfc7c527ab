"""Which values in metrics count something, and which measure it; pure."""

from __future__ import annotations

from collections.abc import Mapping

IN_CHECKPOINT = frozenset({
    "env_steps", "samples", "stale_steps", "duplicate_steps", "unrestorable_rows",
    "dead_letters", "foreign_batches", "expired_records", "corrupt_records",
    "nonfinite_losses", "given_up_rows",
    "batches", "blank_batches", "recovered_steps", "dropped_rows", "updates",
})  # fmt: skip
"""Counters of a learner that its checkpoint has, which may be some minutes behind."""

COUNTERS: Mapping[str, frozenset[str]] = {
    "worker": frozenset({
        "env_steps", "invalid_steps", "unrolls", "bytes", "waited_credit_s",
        "waited_policy_s", "waited_delivery_s", "undelivered_steps", "dead_letters",
        "vector_steps", "usable_steps", "unusable_steps", "env_restarts",
        "policies_adopted", "policy_fetched_bytes",
    }),
    "processor": frozenset({
        "unrolls", "late_records", "holes", "repeated_records", "batches", "env_steps",
        "dead_letters", "expired_records",
    }),
    "learner": IN_CHECKPOINT | {"published", "checkpoints", "waited_data_s"},
    "evaluator": frozenset({
        "episodes", "vector_steps", "usable_steps", "env_restarts",
    }),
    "replayer": frozenset({
        "records", "env_steps", "blank_steps", "bytes", "repeated_records",
    }),
    "archiver": frozenset({"records", "env_steps", "bytes", "repeats", "gap_records"}),
}  # fmt: skip
"""Of each role, those that only grow while a process lives.

Those that a learner's checkpoint has go on from there after a restart; all others begin
at 0.
"""

COUNTS: Mapping[str, frozenset[str]] = {
    **COUNTERS,
    # Steps that were lost may still come: it grows and falls.
    "learner": COUNTERS["learner"] | {"lost_steps", "policy_epoch", "policy_version"},
}
"""Of each role, those that are numbers of something, or times that add up."""
