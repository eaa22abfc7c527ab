"""The part of a spec that says when a person is told that something is wrong."""

from __future__ import annotations

from pydantic import Field

from schemas.spec_part import Part

_DAY_S = 86_400


class AlertsSpec(Part):
    """Rules by which alerts go on and off; a bound of null turns its rule off."""

    stalled_after_s: float | None = Field(
        5.0,
        ge=5,
        le=_DAY_S,
        description="Seconds for which processors or the archiver do nothing although "
        "records wait.",
    )
    learner_stalled_after_s: float | None = Field(
        30.0,
        ge=5,
        le=_DAY_S,
        description="Seconds for which the learner does nothing likewise: its start, "
        "updates and checkpoints may take longer.",
    )
    lost_place: bool = Field(
        True,
        description="Whether to tell of a group that went back, or whose next record "
        "is no longer in the log.",
    )
    growing_for_s: float | None = Field(
        60.0,
        ge=0,
        le=_DAY_S,
        description="Seconds for which the lag of a group grows.",
    )
    near_expiry: bool = Field(
        True,
        description="Whether to tell of a group that has handled so little of its log "
        "that the next to expire is what it has not read.",
    )
    lag_s: float | None = Field(
        60.0,
        gt=0,
        le=365 * _DAY_S,
        description="Seconds that the oldest record which a group has not handled may "
        "have been in the log.",
    )
    nonfinite_loss: bool = Field(
        True, description="Whether to tell of losses that are not finite."
    )
    lost_steps: int | None = Field(
        0, ge=0, description="Steps that may be missing in the log."
    )
    policy_lag_versions: float | None = Field(
        200.0,
        gt=0,
        description="Versions by which the policy behind experience that arrives may "
        "be old; not judged where a past is learnt from.",
    )
    policy_lag_s: float | None = Field(
        None,
        gt=0,
        description="Seconds between acting and learning, of 95 in 100 rows that are "
        "learnt from; what is kept for replay is old on purpose.",
        examples=[30],
    )
    webhook: bool = Field(
        False,
        description="Whether alerts are also posted to the machine's "
        "ROLLSTREAM_ALERT_WEBHOOK.",
    )
