"""One sample -> how far behind it shows a reader; pure."""

from __future__ import annotations

from infra.monitoring.lag.model import Sample


def lag_of(sample: Sample) -> int | None:
    """Return how many records wait to be handled; None where that has no meaning.

    That is so where there is no offset, or one of another log, beyond this one's end.
    Marks of transactions are left out, as far as they were counted; so is what has
    expired. Never negative.
    """
    if sample.next is None or sample.next > sample.end:
        return None
    end = sample.stable_end
    blank_to = sample.next + (sample.markers or 0)
    return max(0, end - max(blank_to, sample.begin))


def missing(sample: Sample, blank_to: int = 0) -> int:
    """Return how many offsets expired that were never handled.

    A single one that an empty log lacks does not count: as likely as not it was the
    mark of a transaction, which nobody reads.

    Args:
        sample: where the reader stands, and where the log begins.
        blank_to: from the reader's next offset to this one there is no record.
    """
    if sample.next is None:
        return 0
    count = max(0, sample.begin - max(sample.next, blank_to))
    return 0 if count == 1 and sample.begin >= sample.end else count


def retention_used(sample: Sample) -> float | None:
    """Return (end - next) / (end - begin): 1 when what expires next was not read."""
    lag, end = lag_of(sample), sample.stable_end
    if lag is None or sample.next is None:
        return None
    if not lag:
        return 0.0
    return (end - max(sample.next, sample.begin)) / (end - sample.begin)
