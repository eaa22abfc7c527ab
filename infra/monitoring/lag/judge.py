"""The last samples of a partition that a group reads -> how it does; pure.

As Burrow does, by whether a group moves and not by how large its lag is, with what
Burrow does not know: where a role says that it stands, what has expired, and that a
topic is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infra.monitoring.lag.age import INTERPOLATED, lag_age
from infra.monitoring.lag.measures import lag_of, retention_used
from infra.monitoring.lag.model import Sample, State, Verdict
from infra.monitoring.lag.trend import growth
from infra.monitoring.lag.window import HEARD_S, Window


@dataclass(frozen=True, slots=True)
class Rules:
    """From when on a partition does badly.

    Attributes:
        stalled_after_s: a group whose position is told has not moved; roles tell it
            each second.
        uncommitted_after_s: likewise of a group of which only commits are known.
        commit_waits: and so many times the longest of its last commits,
        longest_commit_wait_s: of which none counts as longer.
        silent_after_s: a role that is in no group is gone when it told nothing.
        late_after_s: the first record that waits has waited.
        growing_over_s: the lag is looked at for so long before it counts as growing,
        growing_by: by that share at least,
        growing_records: and by so many,
        growing_late_s: when records wait for so long.
        near_expiry: that share of the log has not been handled,
        near_expiry_late_s: and the first of it has waited for so long.
    """

    stalled_after_s: float = 5.0
    uncommitted_after_s: float = 30.0
    commit_waits: float = 3.0
    longest_commit_wait_s: float = 120.0
    silent_after_s: float = HEARD_S
    late_after_s: float = 60.0
    growing_over_s: float = 60.0
    growing_by: float = 0.1
    growing_records: int = 16
    growing_late_s: float = 5.0
    near_expiry: float = 0.8
    near_expiry_late_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Case:
    """A window that is judged, its newest sample, and what most rules ask for."""

    window: Window
    newest: Sample
    rules: Rules
    lag: int
    still_s: float

    @property
    def is_one_look(self) -> bool:
        return self.window.oldest is self.newest


def judge(window: Window, rules: Rules) -> Verdict:
    """Return how a group does in a partition; the first rule that holds.

    The next offset is the position that a role told, where one is known (what is held
    or not saved is no lag), else the committed one. Lag counts no marks of
    transactions. One look alone cannot tell what moves: it shows rules 1 to 5, 8 to 10,
    12 and 13.

    1. The next offset is beyond the log's end, or the committed one is of the topic
       that had the name before: LOST.
    2. Records expired, now or in the window, that were not handled: LOST.
    3. The log holds nothing to be read: EMPTY.
    4. Nothing is committed, and no position was told: NO_COMMIT.
    5. There is lag, nobody is there (no member, and no role told its position for
       ``silent_after_s``), and nothing moved for as long as in rule 6, or since the
       first look: STOPPED.
    6. There was lag all the time, somebody is there, and nothing of it was handled for
       ``stalled_after_s``; where no position is told, for ``uncommitted_after_s`` and
       ``commit_waits`` times as long as its last commits took: STALLED. Not where the
       role says that it leaves records alone on purpose; what it said is believed for
       ``stalled_after_s``.
    7. The committed offset went back, and so did the position, where one is told; and
       they have not come as far again: REWIND. A learner that goes on at its last
       checkpoint goes back to what is committed: no REWIND.
    8. What would be read again after a crash has begun to expire: WARN.
    9. Of a log that has begun to expire more than ``near_expiry`` was not handled, and
       the first of it has waited for ``near_expiry_late_s``: WARN.
    10. The first record that waits has waited for more than ``late_after_s``: WARN.
    11. Each third of the window has a larger least lag than the one before, from the
        first to the last by ``growing_by`` and ``growing_records``, and records wait
        for ``growing_late_s``: WARN.
    12. Nothing waits: OK.
    13. It moves, or nobody can tell yet that it does not: OK.
    """
    newest = window.newest
    if newest is None:
        return Verdict("NO_COMMIT", 4, "nothing is known of it yet")
    since_s = window.still_since_s
    still_s = 0.0 if since_s is None else newest.at_s - since_s
    case = _Case(window, newest, rules, lag_of(newest) or 0, still_s)
    for number, (state, rule) in enumerate(_RULES, start=1):
        if reason := rule(case):
            return Verdict(state, number, reason)
    raise AssertionError("the last rule holds always")


def _beyond_the_end(case: _Case) -> str:
    newest, next_ = case.newest, case.newest.next
    if next_ is not None and next_ > newest.end:
        return (
            f"offset {next_} is beyond the log's end {newest.end}: the topic was made "
            "anew, or the log was cut"
        )
    if case.window.stray is not None:
        return f"offset {case.window.stray} is of the topic that had the name before"
    return ""


def _expired(case: _Case) -> str:
    if case.is_one_look and (count := case.window.missing):
        return f"{_records(count)} expired unread"
    if (loss := case.window.loss) is None:
        return ""
    ago_s = case.newest.at_s - loss.at_s
    when = f", {ago_s:.0f} s ago" if ago_s else ""
    return f"{_records(loss.records)} from offset {loss.next} on expired unread{when}"


def _empty(case: _Case) -> str:
    newest = case.newest
    if newest.stable_end > newest.begin:
        return ""
    if open_ := newest.end - newest.stable_end:
        return f"nothing to read yet: {_records(open_)} in open transactions"
    return "the log holds no records"


def _no_commit(case: _Case) -> str:
    if case.newest.next is not None:
        return ""
    who = ", and the group has no members" if case.newest.members == 0 else ""
    return f"nothing is committed{who}"


def _stopped(case: _Case) -> str:
    if not case.lag or _somebody_is_there(case):
        return ""
    if case.still_s < min(_still_limit_s(case), case.window.span_s):
        return ""
    who = (
        "nobody is there" if case.newest.members is None else "the group has no members"
    )
    if (told := case.newest.standing) is not None:
        who += f", and its role told nothing for {case.newest.at_s - told.at_s:.0f} s"
    return f"{who}: {_wait(case.lag)}"


def _stalled(case: _Case) -> str:
    if not case.lag or case.still_s < _still_limit_s(case) or _waits(case):
        return ""
    newest = case.newest
    what = "handled" if case.window.has_told else "committed"
    owner = f" by {newest.owner}" if newest.owner else ""
    return f"nothing was {what}{owner} for {case.still_s:.0f} s: {_wait(case.lag)}"


def _rewound(case: _Case) -> str:
    committed, next_ = case.window.committed_peak, case.window.next_peak
    if committed is None or next_ is None:
        return ""
    ago_s = case.newest.at_s - committed.at_s
    return (
        f"the committed offset went back from {committed.offset}, {ago_s:.0f} s ago; "
        f"it is at {case.newest.committed}"
    )


def _unsafe(case: _Case) -> str:
    newest = case.newest
    if newest.committed is None or newest.next is None:
        return ""
    gone = min(newest.begin, newest.next) - newest.committed
    if gone <= 0:
        return ""
    return f"{_records(gone)} that are handled and not committed have expired"


def _near_expiry(case: _Case) -> str:
    # A log that has never lost anything is not near to it, as far as is known.
    used = retention_used(case.newest) if case.newest.begin > 0 else None
    if used is None or used <= case.rules.near_expiry:
        return ""
    age_s, _ = lag_age(case.window)
    if age_s is not None and age_s < case.rules.near_expiry_late_s:
        return ""
    return f"{used:.0%} of the log was not handled, and it expires: {_wait(case.lag)}"


def _late(case: _Case) -> str:
    age_s, method = lag_age(case.window)
    if age_s is None or age_s <= case.rules.late_after_s:
        return ""
    how = f" ({method})" if method == INTERPOLATED else ""
    return f"the first of {_records(case.lag)} has waited for {age_s:.0f} s{how}"


def _growing(case: _Case) -> str:
    rules, window = case.rules, case.window
    if case.lag <= rules.growing_records or window.span_s < rules.growing_over_s:
        return ""
    age_s, _ = lag_age(window)
    if age_s is not None and age_s < rules.growing_late_s:
        return ""
    if (found := growth(window.samples)) is None:
        return ""
    first, last = found
    if last - first <= max(rules.growing_records, rules.growing_by * last):
        return ""
    return f"the lag grows for {window.span_s:.0f} s: from {_records(first)} to {last}"


def _nothing_waits(case: _Case) -> str:
    if case.lag:
        return ""
    held = case.newest.standing.held if case.newest.standing else 0
    return f"all is handled, and {held} held back" if held else "all is handled"


def _moves(case: _Case) -> str:
    waits = _wait(case.lag)
    if case.is_one_look:
        return f"{waits}; one look cannot tell whether it moves"
    if _waits(case):
        return f"{waits}: the learner is to learn first from what it has"
    if case.still_s:
        return f"{waits}, for {case.still_s:.0f} s so far"
    return f"{waits}, and it moves"


_RULES: tuple[tuple[State, Callable[[_Case], str]], ...] = (
    ("LOST", _beyond_the_end),
    ("LOST", _expired),
    ("EMPTY", _empty),
    ("NO_COMMIT", _no_commit),
    ("STOPPED", _stopped),
    ("STALLED", _stalled),
    ("REWIND", _rewound),
    ("WARN", _unsafe),
    ("WARN", _near_expiry),
    ("WARN", _late),
    ("WARN", _growing),
    ("OK", _nothing_waits),
    ("OK", _moves),
)


def _still_limit_s(case: _Case) -> float:
    """For how long nothing may move: commits come less often than what roles tell."""
    rules = case.rules
    if case.window.has_told:
        return rules.stalled_after_s
    commit_s = min(case.window.commit_wait_s, rules.longest_commit_wait_s)
    return max(rules.uncommitted_after_s, rules.commit_waits * commit_s)


def _somebody_is_there(case: _Case) -> bool:
    """A role of ours may read without being a member: then what it tells shows it."""
    newest = case.newest
    told = newest.standing
    if told is not None and newest.at_s - told.at_s <= case.rules.silent_after_s:
        return True
    if newest.members is None:
        # Nothing is known of a reader that never told anything.
        return not case.window.has_told
    return newest.members > 0


def _waits(case: _Case) -> bool:
    told = case.newest.standing
    if told is None or not told.waits:
        return False
    return case.newest.at_s - told.at_s <= case.rules.stalled_after_s


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _wait(count: int) -> str:
    return "1 record waits" if count == 1 else f"{count} records wait"
