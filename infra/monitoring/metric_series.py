"""Values with their labels -> the metric families that Prometheus scrapes; pure.

Labels come from topics and groups, where anybody may have written: they are cut,
unprintable characters are marked, and no two series are the same, for a scrape in which
one thing is wrong is lost as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from infra.printable import printable

MAX_LABEL = 200
"""Characters of a label's value."""

_DIGEST = 8


@dataclass(frozen=True, slots=True)
class Series:
    """What a family of series is called, and what its labels are called.

    Attributes:
        name: of the family; of a counter with its ``_total``.
        help: what it says, in a line.
        labels: their names.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def is_counter(self) -> bool:
        """Whether it only grows, but for beginning anew."""
        return self.name.endswith("_total")

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Return its family, without a sample."""
        make = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        return make(self.name, self.help, labels=self.labels)


class Families:
    """Gathers samples of one scrape."""

    def __init__(self) -> None:
        self._found: dict[Series, GaugeMetricFamily | CounterMetricFamily] = {}
        self._seen: set[tuple[str, tuple[str, ...]]] = set()

    def add(
        self, series: Series, labels: Iterable[object], value: float | None
    ) -> None:
        """Add a sample; what is not known has none, and a second of a kind is not."""
        values = tuple(label(str(each)) for each in labels)
        key = series.name, values
        if value is None or key in self._seen:
            return
        self._seen.add(key)
        family = self._found.get(series)
        if family is None:
            family = self._found[series] = series.family()
        family.add_metric(values, value)

    def families(self) -> list[Metric]:
        """Return what was gathered."""
        return list(self._found.values())


@lru_cache(8_192)
def label(text: str) -> str:
    """Return a text as a label's value: printable, bounded, and still its own.

    One that is changed ends with a digest, so that it is not taken for another.
    """
    shown = printable(text)
    if shown == text and len(text) <= MAX_LABEL:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{shown[: MAX_LABEL - _DIGEST - 1]}~{digest}"
