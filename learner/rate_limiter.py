"""Inserts and samples so far -> may there be another?

Of rows that are sampled again and again, Reverb's ``SampleToInsertRatio``: ``diff =
inserts * samples_per_insert - samples``; sampling waits below ``min_diff`` and
inserting above ``max_diff``. Of rows that are learnt from once, those that wait.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from schemas.experiment import Spec
from schemas.flow import floor_window, least_window


@dataclass
class RateLimiter:
    """Keeps the ratio of samples to inserts within an error buffer.

    The buffer may be changed while running: it is a band around the ratio, not a count.

    An item is a row that can be sampled, now or once what it bootstraps from has come.

    Attributes:
        samples_per_insert: the ratio, per item.
        min_size: items that must be there before anything is sampled.
        error_buffer: how far ``diff`` may be from ``samples_per_insert * min_size``.
        slack: how much farther, for what other sources have in hand; see Pace.
        inserts: items inserted so far, across restarts.
        samples: items sampled so far, across restarts.
        deletes: items that left the buffer, overwritten or not restorable.
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float
    inserts: int = 0
    samples: int = 0
    deletes: int = 0
    slack: float = 0.0

    def __post_init__(self) -> None:
        smallest = max(1.0, self.samples_per_insert)
        if self.samples_per_insert <= 0 or self.min_size < 1:
            raise ValueError(
                "expected samples_per_insert > 0 and min_size >= 1, found "
                f"{self.samples_per_insert} and {self.min_size}"
            )
        if self.error_buffer < smallest:
            raise ValueError(
                f"error_buffer: expected at least max(1, samples_per_insert) = "
                f"{smallest:g}, found {self.error_buffer:g}: both sides could wait"
            )

    @property
    def size(self) -> int:
        """The items that are there."""
        return self.inserts - self.deletes

    @property
    def diff(self) -> float:
        """How many samples the inserts so far have earned and not spent."""
        return self.inserts * self.samples_per_insert - self.samples

    @property
    def _centre(self) -> float:
        return self.samples_per_insert * self.min_size

    @property
    def min_diff(self) -> float:
        """The lowest ``diff`` that sampling may leave behind."""
        return self._centre - self.error_buffer - self.slack

    @property
    def max_diff(self) -> float:
        """The highest ``diff`` that inserting may leave behind."""
        return self._centre + self.error_buffer + self.slack

    def can_sample(self, count: int = 1) -> bool:
        """Whether ``count`` items may be sampled now."""
        return self.size >= self.min_size and self.diff - count >= self.min_diff

    def can_insert(self, count: int = 1) -> bool:
        """Whether ``count`` items may be inserted now, one after the other."""
        if self.size + count <= self.min_size:
            return True
        return self.diff + count * self.samples_per_insert <= self.max_diff

    def can_insert_batch(self, count: int) -> bool:
        """Whether ``count`` items may be inserted now, all or none.

        Reverb inserts one by one and so always reaches ``min_size``; a batch that
        would pass it must not wait either, since sampling waits until it is reached.
        """
        return self.size < self.min_size or self.can_insert(count)

    @property
    def room(self) -> float:
        """How many items may be inserted before inserting waits."""
        ahead = (self.max_diff - self.diff) / self.samples_per_insert
        return max(ahead, self.min_size - self.size)

    def widen(self, spec: Spec, workers: int) -> None:
        """Let the error buffer be that of so many live workers."""
        self.error_buffer = error_buffer_for(spec, workers)

    def insert(self, count: int) -> None:
        """Count items inserted."""
        self.inserts += count

    def sample(self, count: int) -> None:
        """Count items sampled."""
        self.samples += count

    def resize(self, size: int) -> None:
        """Count as deleted what no longer is in a buffer of ``size`` items."""
        self.deletes = self.inserts - size

    def state(self) -> dict[str, float]:
        """Return the counters and settings, for a checkpoint."""
        return asdict(self)

    def restore(self, state: dict[str, float]) -> None:
        """Continue at a checkpoint's counters.

        Where the spec's ratio has changed since, ``samples`` is moved so that the new
        ratio holds from here on: there is no burst to make up for the past.
        """
        self.inserts = int(state["inserts"])
        self.deletes = int(state["deletes"])
        before = RateLimiter(**{**state, "inserts": 0, "samples": 0, "deletes": 0})  # type: ignore[arg-type]
        same = before.samples_per_insert == self.samples_per_insert
        self.samples = int(state["samples"])
        if not same or before.min_size != self.min_size:
            self._forget_the_past(before)

    def _forget_the_past(self, before: RateLimiter) -> None:
        earned = self.inserts * before.samples_per_insert - self.samples
        ahead = earned - before.samples_per_insert * before.min_size
        centre = self.samples_per_insert * self.min_size
        bounded = max(-self.error_buffer, min(self.error_buffer, ahead))
        self.samples = round(self.inserts * self.samples_per_insert - centre - bounded)


@dataclass
class QueueLimiter(RateLimiter):
    """Bounds rows of which each is learnt from once, and then is gone.

    What counts is how many wait: sampling does so below ``min_size``, an update's, and
    inserting from ``min_size + error_buffer`` on. So one of both may always go on, be
    rows not valid, too old or left unlearnt: none of them waits.
    """

    def __post_init__(self) -> None:
        """Check nothing: an error buffer of 0 is well."""

    @property
    def diff(self) -> float:
        """How many rows wait to be learnt from."""
        return float(self.size)

    @property
    def min_diff(self) -> float:
        """None of them has to stay."""
        return 0.0

    @property
    def max_diff(self) -> float:
        """From how many on inserting waits."""
        return self.min_size + self.error_buffer

    def can_sample(self, count: int = 1) -> bool:
        """Whether there are an update's rows, whatever ``count`` is asked for."""
        return self.size >= self.min_size

    def can_insert(self, count: int = 1) -> bool:
        """Whether another batch is let in: it may be one too many."""
        return self.size < self.max_diff

    can_insert_batch = can_insert

    @property
    def room(self) -> float:
        """How many rows may be inserted before inserting waits."""
        return max(self.max_diff - self.size, 0.0)

    def widen(self, spec: Spec, workers: int) -> None:
        """Let so many rows wait as so many live workers make use of."""
        self.error_buffer = queue_beyond_batch(spec, workers)

    def restore(self, state: dict[str, float]) -> None:
        """Continue at a checkpoint's counters."""
        self.inserts, self.samples = int(state["inserts"]), int(state["samples"])
        self.deletes = int(state["deletes"])


def error_buffer_for(spec: Spec, workers: int) -> float:
    """Return how far the ratio may be off, in samples, with so many live workers.

    A floor window from each of them, at least two unrolls: with Reverb's minimum the
    learner idles half of the time; and with less than the n-step horizon inserting may
    wait before any row has come that the first could bootstrap from. And never less
    than half of what one insert and one sample need together, or both could wait for
    each other.
    """
    samples_per_insert = spec.learner.samples_per_insert
    num_steps, batch_size = spec.workers.unroll_length, spec.learner.batch_size
    unroll = samples_per_insert * num_steps * spec.workers.envs_per_worker
    least = least_window(spec.learner)
    window = floor_window(spec.processor.n_step, num_steps, least=least)
    return max(
        window * unroll * max(workers, 1),
        unroll + batch_size,
        max(1.0, samples_per_insert),
    )


def queue_beyond_batch(spec: Spec, workers: int) -> float:
    """Return how many rows may wait beyond those of the next update, on-policy.

    As many as are learnt from before the policy of the first is too old, but no more
    than keep so many live workers busy: what waits gets old.
    """
    learner = spec.learner
    usual = error_buffer_for(spec, workers)
    limit = learner.policy_lag_limit
    if limit is None:
        return usual
    updates = (1 + limit) * learner.updates_per_policy
    return min(float((updates - 1) * learner.batch_size), usual)
