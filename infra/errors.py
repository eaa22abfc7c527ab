"""The errors of `infra`: each names the thing, what was expected, and how to mend it.

RollstreamError
├── SettingsError      an environment variable is wrong
├── ClusterError       the local Kafka or ZooKeeper does not start, answer or stop
│   └── JarError       their jars cannot be had, or are not the ones in jars.lock
├── Hopeless           what is asked for cannot work here, however often it is tried
├── KafkaUnavailable   the configured brokers do not answer
├── DeliveryError      a record will never be delivered
└── TopicError         a topic cannot be made, read or removed
    ├── TopicDrift     a topic exists, and is not what it has to be
    └── OffsetError    an offset that was asked for is not in the log
"""


class RollstreamError(Exception):
    """Base of all errors that a person can mend; `mend` says how."""

    def __init__(self, problem: str, mend: str = "") -> None:
        self.problem = problem
        self.mend = mend
        super().__init__(f"{problem}. To mend: {mend}" if mend else problem)


class SettingsError(RollstreamError):
    """An environment variable is missing, malformed or contradicts another."""


class ClusterError(RollstreamError):
    """The local cluster does not start, answer or stop."""


class JarError(ClusterError):
    """The jars of the local cluster are missing or differ from jars.lock."""


class Hopeless(RollstreamError):
    """What is asked for cannot work on this machine, whatever passes meanwhile."""


class KafkaUnavailable(RollstreamError):
    """The brokers do not answer within the time given."""


class DeliveryError(RollstreamError):
    """A record was refused for good: what is sent after it cannot be trusted."""


class TopicError(RollstreamError):
    """A topic cannot be made, read or removed."""


class TopicDrift(TopicError):
    """An existing topic differs from its declaration where that loses data."""


class OffsetError(TopicError):
    """The offset asked for is not, or no longer, in the log."""
