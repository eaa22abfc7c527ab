"""What a processor says of itself: counters, positions, Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from schemas.records import Position
from stream_processors.tails import TailCounts

LOOPBACK = "127.0.0.1"
_LATENCY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


@dataclass(slots=True)
class Counts:
    """Counters since this process started.

    Attributes:
        tails: what was met in the log.
        batches: delivered.
        env_steps: valid rows of those.
        dead_letters: records that could not be used, delivered there.
        expired_records: deleted before anybody had acknowledged them.
    """

    tails: TailCounts = field(default_factory=TailCounts)
    batches: int = 0
    env_steps: int = 0
    dead_letters: int = 0
    expired_records: int = 0

    def values(self) -> dict[str, float]:
        """Return them by name."""
        found = asdict(self)
        return {name: float(n) for name, n in (found.pop("tails") | found).items()}


class Telemetry:
    """The counters, and where each partition stands; read by other threads."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.positions: tuple[Position, ...] = ()
        self._registry = CollectorRegistry()
        self.latency = Histogram(
            "rollstream_processor_latency_seconds",
            "From an unroll's last step, by its worker's clock, to its batch delivered",
            buckets=_LATENCY_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(self)

    def serve(self, port: int) -> None:
        """Serve Prometheus metrics, to this machine alone.

        Raises:
            OSError: the port is taken.
        """
        start_http_server(port, LOOPBACK, self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield what Prometheus scrapes."""
        for name, value in self.counts.values().items():
            metric = CounterMetricFamily(f"rollstream_processor_{name}", name)
            metric.add_metric([], value)
            yield metric
        for name in ("position", "committed", "held"):
            gauge = GaugeMetricFamily(
                f"rollstream_processor_{name}", name, labels=["partition"]
            )
            for each in self.positions:
                gauge.add_metric([str(each.partition)], getattr(each, name))
            yield gauge
