"""What was taken in -> values of a learner's metrics."""

from __future__ import annotations

from learner.intake import Intake


def intake_values(intake: Intake) -> dict[str, float]:
    """Return counters and gauges of the intake, over all sources.

    Where there are several, two more of each: ``source_rows/<experiment>``, what is
    held of it, and ``source_samples/<experiment>``, what was drawn since the start.
    """
    ledgers = [source.ledger for source in intake.sources]
    values = intake.counters.state() | {
        "lost_steps": sum(ledger.lost_steps for ledger in ledgers),
        "recovered_steps": sum(ledger.recovered_steps for ledger in ledgers),
        "buffer_rows": intake.replay.rows,
        "samplable_rows": intake.replay.samplable_rows,
        "dropped_rows": intake.replay.dropped_rows,
        "workers": len(intake.windows.workers()),
        "samples_owed": intake.limiter.diff - intake.limiter.min_diff,
    }
    if len(intake.sources) > 1:
        for source in intake.sources:
            values[f"source_rows/{source.run.name}"] = source.buffer.rows
            values[f"source_samples/{source.run.name}"] = source.samples
    return values
