"""Chosen records of a past -> the trajectories of another experiment, exactly once.

``replay`` takes any iterator of them: whoever has experience with an identity, and can
give it again from a position on, can bring it in.
"""

from __future__ import annotations

import logging
import time

from archive.pacing import Pace
from archive.progress_log import Past, Standing
from archive.sending import Counts, Records, Sending, Watch
from archive.target import check_target
from archive.transactions import Unsure
from infra.control.desired import PublishedExperiment
from infra.errors import KafkaUnavailable
from infra.settings import Settings

__all__ = ["Counts", "Records", "Watch", "replay"]

_RETRY_S = 1.0
_GIVE_UP_S = 120.0
_log = logging.getLogger("rollstream.archive")


def replay(
    settings: Settings,
    target: PublishedExperiment,
    past: Past,
    records: Records,
    *,
    pace: Pace | None = None,
    watch: Watch = lambda standing, counts: None,
) -> tuple[Standing, dict[int, int]]:
    """Send a past into an experiment, from where it was left to its end.

    1. Refuse a target that holds something else.
    2. Fence whoever did the same before; from now on nobody else writes.
    3. Read how far it is: that is committed together with the records.
    4. Send, and commit now and then with how far it is; close what is left open.
    5. Where it is not known whether a transaction came about, begin again at 2.

    Killed at any moment, called again it goes on without a gap or a repeat.

    Returns:
        how far it is: to its end; and where the records of each partition of the
        target end, as far as it is known.

    Raises:
        OtherReplay: step 1.
        Superseded: another process has begun to do the same.
        Refused: the brokers will never take a record.
        RollstreamError: the source cannot be read, or nothing came about for 120 s.
    """
    check_target(settings, target, past)  # Step 1: before anybody is fenced.
    counts, tries_since_s, num_done = Counts(), time.monotonic(), -1
    while True:
        sending = None
        try:
            sending = Sending(settings, target, past, counts)  # Steps 2, 3.
            sending.run(records, pace or Pace(), watch)  # Step 4.
            return sending.standing, sending.ends
        except (Unsure, KafkaUnavailable) as exc:  # Step 5.
            done = sending.committed.num_done if sending else num_done
            if done != num_done:
                num_done, tries_since_s = done, time.monotonic()
            if time.monotonic() - tries_since_s > _GIVE_UP_S:
                raise
            _log.warning("%s; trying again", exc.problem)
        finally:
            if sending is not None:
                sending.close()
        time.sleep(_RETRY_S)
