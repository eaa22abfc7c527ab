"""The kinds of events there are, and what each says; mypy lets nobody send another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Severity = Literal["info", "warning", "alert"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "alert")
"""From least to most bad."""

EventKind = Literal[
    # Of the control plane, about a role or a whole experiment.
    "started", "restarted", "moved", "stopped", "failed", "stuck", "scaled",
    "degraded", "finished", "refused",
    # Of whoever watches over an experiment, by the rules in its spec.
    "alert-on", "alert-off",
    # Of workers and evaluators.
    "worker-failed", "evaluator-failed", "worker-env-crashed", "worker-idle",
    "env-nonfinite", "lossy-encoding", "undelivered-steps", "unroll-refused",
    "policy-refused", "policy-nonfinite",
    "best-policy-refused", "control-record-refused", "metrics-record-refused",
    "package-versions-differ",
    # Of whoever reads the log.
    "another-log", "corrupt-record", "expired-records", "open-transaction",
    "partitions-changed", "unknown-schema",
    # Of archivers and replayers.
    "archive-gap", "past-incomplete", "replay-failed", "replayed",
    # Of processors.
    "processor-crashed", "too-many-bad-records",
    # Of learners.
    "learner-started", "learner-stopped", "checkpoint-failed", "checkpoint-garbled",
    "checkpoint-recovered", "lost-steps", "nonfinite-loss", "odd-batch", "rows-refused",
    "unreadable-record", "unrestorable-rows", "worker-spaces-differ",
    "worker-versions-differ",
]  # fmt: skip

KINDS: Mapping[EventKind, str] = {
    "started": "a role's process runs for the first time",
    "restarted": "it was started again, after a failure or with a changed spec",
    "moved": "a role goes on at another agent",
    "stopped": "a role was told to stop, or an experiment was",
    "failed": "a role's process ended without being told to",
    "stuck": "a role's process lives, and does nothing though there is work",
    "scaled": "there are more or fewer processes of a role now, or no room for more",
    "degraded": "a role failed too often, and is no longer restarted",
    "finished": "the experiment has reached an end that its spec names",
    "refused": "a spec in the topic is not obeyed",
    "alert-on": "something is wrong by a rule of spec.alerts",
    "alert-off": "it is no longer",
    "worker-failed": "a worker cannot go on, and ends",
    "evaluator-failed": "an evaluator cannot go on, and ends",
    "worker-env-crashed": "an environment raised or hung, and was made anew",
    "env-nonfinite": "an environment gave a number that is not finite",
    "lossy-encoding": "what the packing that the spec asks for takes from images",
    "worker-idle": "a worker does not step, and why",
    "undelivered-steps": "a worker ended with steps that the log does not have",
    "unroll-refused": "the broker takes no record of this size; it is a dead letter",
    "policy-refused": "a policy cannot be used; the one before acts on",
    "policy-nonfinite": "a policy answered with a number that is not finite",
    "best-policy-refused": "the best policy so far cannot be read",
    "control-record-refused": "a spec, credit, member or policy cannot be read",
    "metrics-record-refused": "an evaluation of before cannot be read",
    "package-versions-differ": "two workers have other versions of packages",
    "another-log": "the topic that is read was deleted, or made anew",
    "corrupt-record": "a checksum is wrong; the partition waits there",
    "expired-records": "records were deleted before they were read",
    "open-transaction": "somebody's open transaction holds back records",
    "partitions-changed": "a topic has other partitions than the spec",
    "unknown-schema": "a record's schema is not known; its reader waits for it",
    "archive-gap": "records had expired before they were archived",
    "past-incomplete": "records of a past had expired before it was replayed",
    "replay-failed": "a past cannot be replayed, and its role ends",
    "replayed": "a past is replayed to its end",
    "processor-crashed": "a processor ended by an error that nobody expected",
    "too-many-bad-records": "a processor ends rather than fill the dead letters",
    "learner-started": "a learner begins to learn, afresh or at a checkpoint",
    "learner-stopped": "a learner cannot go on, and ends",
    "checkpoint-failed": "a checkpoint was not written; the one before stays",
    "checkpoint-recovered": "a checkpoint was written again, after some were not",
    "checkpoint-garbled": "a checkpoint cannot be read; an older one is used",
    "lost-steps": "a worker's stream has a hole",
    "nonfinite-loss": "an update was left out: its loss is not a number",
    "odd-batch": "a batch is not what its stream promised",
    "rows-refused": "rows that cannot be learnt from",
    "unreadable-record": "a member or credit cannot be read",
    "unrestorable-rows": "rows of the replay buffer are no longer in the log",
    "worker-spaces-differ": "a worker's environment has other spaces",
    "worker-versions-differ": "a worker has other versions than the first",
}
