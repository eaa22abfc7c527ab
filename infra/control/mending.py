"""Refused and deleted specs: told of, put right in the topic, cleaned up after."""

from __future__ import annotations

import logging

from infra.control.chores import Chores
from infra.control.deletion import clean_up
from infra.control.desired import Desired, Entry, Refusal
from infra.control.durable_acts import DurableActs
from infra.control.experiments import restore
from infra.control.notices import Notices
from infra.control.statuses import WHOLE_ROLE
from infra.errors import RollstreamError

_log = logging.getLogger("rollstream.leader")


class Mender:
    """A term's; what it remembers is only what it has told already."""

    def __init__(self, acts: DurableActs, notices: Notices, chores: Chores) -> None:
        self._acts = acts
        self._notices = notices
        self._chores = chores
        self._told: dict[str, Refusal | None] = {}

    def mend(self, name: str, entry: Entry, desired: Desired) -> None:
        """Tell of a refused spec; put what is in force behind it, for compaction."""
        # Not ``refused``: what is in force may be behind it by the time that we look.
        self._tell(name, entry)
        if entry.refused is None:
            return

        def put_behind() -> None:
            if desired.of(name) == entry:
                restore(self._acts.sender, name, entry)

        if entry.accepted is not None or entry.deleted:
            key = ("restore", name, entry.refused.offset)
            self._chores.see_to(key, self._acts.while_leading(put_behind))

    def clean(self, name: str, entry: Entry, desired: Desired) -> None:
        """Remove what an experiment has left, once for each tombstone."""

        def clean() -> None:
            if not desired.of(name).deleted:
                return  # it was launched again
            if self._acts.leadership.live_roles(name):
                raise RollstreamError(f"roles of {name} are still ending")
            clean_up(self._acts.settings, name)

        key = ("clean", name, entry.tombstone_offset)
        # A new leader looks after all that was ever deleted: nobody waits for that.
        self._chores.see_to(key, self._acts.while_leading(clean), last=True)

    def _tell(self, name: str, entry: Entry) -> None:
        refused, known = entry.last_refused, entry.accepted
        # What an earlier leader has put right, it has told of.
        told = self._told.get(name, refused if entry.refused is None else None)
        self._told[name] = refused
        if refused is None or refused == told:
            return
        reason = f"offset {refused.offset}: {refused.reason}"
        _log.warning("a spec of %s is refused: %s", name, reason)
        # Without a spec in force there may be no topic for it.
        if known is not None and self._acts.leadership.is_sure:
            run_id = known.run_id
            self._notices.event(
                name, run_id, WHOLE_ROLE, 0, "refused", reason, "warning"
            )
