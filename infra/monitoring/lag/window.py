"""The last samples of a place, and what must be remembered for longer than those."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from infra.monitoring.lag.ends import Ends
from infra.monitoring.lag.measures import lag_of, missing
from infra.monitoring.lag.model import Sample, Standing

SPAN_S = 120.0
SAMPLES = 512
# Older ones are kept coarser: nothing that is asked of them needs every second.
_FINE_S = 10.0
_COARSE_S = 4.0
HEARD_S = 10.0
"""A role that tells nothing for longer is not there; each tells every second."""
_OUTAGE_S = 10.0
_COMMITS = 8


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that expired before they were read; when that was seen last."""

    records: int
    next: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Where something was before it went back, and when it did."""

    offset: int
    at_s: float


class Window:
    """Samples of one partition of a group, oldest first.

    Bounded: the last ``SPAN_S`` seconds and at most ``SAMPLES``. Starts anew when the
    topic's id changes.

    Attributes:
        still_since_s: since when there was lag all the time, and nothing of it was
            handled; None: there is no lag. Outages of the brokers do not count, and who
            has only just come has its time.
        loss: the last that was seen, until ``SPAN_S`` later.
        committed_peak: from where the committed offset went back; None: it did not, or
            is as far again.
        next_peak: the same of the next offset.
        went_back_s: when any of the offsets did last; None: not in this window.
        stray: what was committed in the topic that had the name before; None once
            something else is.
        has_told: a role has told where it stands.
    """

    def __init__(self, *samples: Sample) -> None:
        """Take in samples, if there are any already."""
        self._topic_id = ""
        self._anew_at_s: float | None = None
        self.has_told = False
        self.stray: int | None = None
        self._begin_anew()
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Take in a sample; one that is not newer than the last is ignored."""
        before = self.newest
        if before is not None and sample.at_s <= before.at_s:
            return
        if before is not None and self._is_of_another_topic(sample):
            self.stray, self._anew_at_s = before.committed or None, before.at_s
            self._begin_anew()
            before = None
        self._topic_id = sample.topic_id or self._topic_id
        if sample.committed != self.stray:
            self.stray = None
        sample = self._completed(sample, before)
        self.has_told = self.has_told or sample.standing is not None
        self._remember_what_went_back(sample, before)
        self._remember_loss(sample, before)
        self._remember_progress(sample, before)
        self._ends.add(sample.end, sample.at_s, sample.next)
        if sample.next is not None and sample.next_appended_at_s is not None:
            self._ends.add_record(sample.next, sample.next_appended_at_s)
        self._keep(sample)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Oldest first; those older than some seconds are not all kept."""
        return (*self._older, *self._recent)

    @property
    def oldest(self) -> Sample | None:
        """The first sample that is kept; None before the first."""
        return self._older[0] if self._older else next(iter(self._recent), None)

    @property
    def newest(self) -> Sample | None:
        """The last sample; None before the first."""
        return self._recent[-1] if self._recent else None

    @property
    def span_s(self) -> float:
        """From the oldest to the newest."""
        oldest, newest = self.oldest, self.newest
        return newest.at_s - oldest.at_s if oldest and newest else 0.0

    @property
    def commit_wait_s(self) -> float:
        """The longest of the last waits, from when there was something to commit."""
        return max(self._commit_waits, default=0.0)

    @property
    def missing(self) -> int:
        """How many offsets, by the newest sample, expired before they were handled."""
        return self._missing(self.newest) if self.newest else 0

    def appended_at_s(self, offset: int) -> float | None:
        """Return when an offset was appended, between samples of the log's end.

        None: before the first sample. Who has none may read the record's time instead
        (``Sample.next_at_s``). The time of the newest sample: not before that.
        """
        return self._ends.appended_at_s(offset)

    def _is_of_another_topic(self, sample: Sample) -> bool:
        ids = self._topic_id, sample.topic_id
        return all(ids) and ids[0] != ids[1]

    def _begin_anew(self) -> None:
        self._older: deque[Sample] = deque()
        self._recent: deque[Sample] = deque(maxlen=SAMPLES - int(SPAN_S / _COARSE_S))
        self._ends = Ends()
        # From the first of these offsets to the second there is no record.
        self._blank = (-1, -1)
        self._commit_waits: deque[float] = deque(maxlen=_COMMITS)
        self._uncommitted_since_s: float | None = None
        self.still_since_s: float | None = None
        self.loss: Loss | None = None
        self.committed_peak: Peak | None = None
        self.next_peak: Peak | None = None
        self.went_back_s: float | None = None
        self.has_told = False

    def _completed(self, sample: Sample, before: Sample | None) -> Sample:
        """Leave out what is of another topic; add what an earlier sample has shown."""
        sample = replace(sample, standing=self._believed(sample))
        if sample.next is None:
            return sample
        if sample.markers and sample.next + sample.markers == sample.stable_end:
            self._blank = (sample.next, sample.stable_end)
        elif sample.markers is None and self._blank[0] == sample.next:
            known = min(self._blank[1], sample.stable_end) - sample.next
            sample = replace(sample, markers=max(0, known))
        if before is None or sample.next_at_s is not None:
            return sample
        if before.next_at_s is not None and before.next == sample.next:
            sample = replace(sample, next_at_s=before.next_at_s)
        return sample

    def _believed(self, sample: Sample) -> Standing | None:
        told = sample.standing
        # However old: a role that is gone has handled what it told of, and what of that
        # is not saved is no lag that grows as time goes by.
        if told is None:
            return None
        if self._anew_at_s is not None and told.at_s <= self._anew_at_s:
            return None
        if sample.committed is None and told.position == 0:
            # It has not begun, and will where the log does: it has lost nothing.
            return replace(told, position=sample.begin)
        return told

    def _remember_what_went_back(self, sample: Sample, before: Sample | None) -> None:
        if before is None:
            return
        now_s = sample.at_s
        self.committed_peak = _peak(
            self.committed_peak, before.committed, sample.committed, now_s
        )
        self.next_peak = _peak(self.next_peak, before.next, sample.next, now_s)
        if _is_less(sample.next, before.next) or sample.end < before.end:
            self.went_back_s = now_s
        elif self.went_back_s is not None and now_s - self.went_back_s > SPAN_S:
            self.went_back_s = None

    def _remember_loss(self, sample: Sample, before: Sample | None) -> None:
        """What expired while it was asked for may have been read in between.

        Only what is behind the log's begin of one sample before is lost for certain.
        """
        if self.loss and sample.at_s - self.loss.at_s > SPAN_S:
            self.loss = None
        if before is None or sample.next is None or sample.next >= before.begin:
            return
        if records := self._missing(sample):
            self.loss = Loss(records, sample.next, sample.at_s)

    def _missing(self, sample: Sample) -> int:
        start, blank_to = self._blank
        return missing(sample, blank_to if start == sample.next else 0)

    def _remember_progress(self, sample: Sample, before: Sample | None) -> None:
        now_s = sample.at_s
        pause_s = self._outage_s(now_s)
        if self.still_since_s is not None:
            self.still_since_s += pause_s
        if self._uncommitted_since_s is not None:
            self._uncommitted_since_s += pause_s
        moved = before is not None and _is_less(before.next, sample.next)
        if not lag_of(sample):
            self.still_since_s = None
        elif self.still_since_s is None or moved or _has_come(sample, before):
            self.still_since_s = now_s
        self._remember_commit(sample, before)

    def _remember_commit(self, sample: Sample, before: Sample | None) -> None:
        now_s, since_s = sample.at_s, self._uncommitted_since_s
        if before is not None and _is_less(before.committed, sample.committed):
            if since_s is not None:
                self._commit_waits.append(now_s - since_s)
            since_s = now_s
        committed = sample.committed
        if committed is None or committed + (sample.markers or 0) >= sample.stable_end:
            since_s = None
        elif since_s is None:
            since_s = now_s
        self._uncommitted_since_s = since_s

    def _outage_s(self, now_s: float) -> float:
        """For how long nobody could look, nor work: much longer than between looks."""
        if len(self._recent) < 2:
            return 0.0
        usual_s = self._recent[-1].at_s - self._recent[-2].at_s
        gap_s = now_s - self._recent[-1].at_s
        return gap_s - usual_s if gap_s > max(_OUTAGE_S, 3 * usual_s) else 0.0

    def _keep(self, sample: Sample) -> None:
        older, recent = self._older, self._recent
        recent.append(sample)
        while sample.at_s - recent[0].at_s > _FINE_S and len(recent) > 2:
            leaves = recent.popleft()
            if not older or leaves.at_s - older[-1].at_s >= _COARSE_S:
                older.append(leaves)
        while older and sample.at_s - older[0].at_s > SPAN_S:
            older.popleft()
        while sample.at_s - recent[0].at_s > SPAN_S:
            recent.popleft()


def _has_come(sample: Sample, before: Sample | None) -> bool:
    """Whether somebody is there after nobody was: a member, or a role that tells."""
    if before is None:
        return False
    return (before.members == 0 and bool(sample.members)) or (
        not _is_heard(before) and _is_heard(sample)
    )


def _is_heard(sample: Sample) -> bool:
    told = sample.standing
    return told is not None and sample.at_s - told.at_s <= HEARD_S


def _is_less(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other


def _peak(
    peak: Peak | None, before: int | None, now: int | None, at_s: float
) -> Peak | None:
    if before is not None and now is not None and now < before:
        return Peak(max(before, peak.offset if peak else 0), at_s)
    if peak is None or now is None or now >= peak.offset or at_s - peak.at_s > SPAN_S:
        return None
    return peak
