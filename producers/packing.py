"""Which encoding each field of observations gets: as the spec says, or as measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from producers.spaces import Fields
from schemas.encoding_spec import EncodingSpec
from schemas.encodings import LOSSY, Encoding
from schemas.tensors import LOSSLESS, Array, Tensor, pack

MEASURED_UNROLLS = 4

BYTE_NS = 20.0
"""What a byte of a record costs, in ns of CPU time: about ten on its way, for it is
written to the log and read from it twice (frames that travel RAW took 12 more than
packed ones for each byte more), and as much for disks and caches that hold it for days.
"""

CANDIDATES: tuple[Encoding, ...] = (
    "RAW", "ZSTD", "LZ4", "ZSTD_DELTA", "LZ4_DELTA",
)  # fmt: skip
# Disks and caches gain from smaller records, people from records that are as they were:
# what takes off less than half is not worth a clock's opinion.
_PAYS_BELOW = 0.5
_TOP = 255.0


@dataclass(frozen=True)
class Loss:
    """What an encoding took from the first records of a field.

    Attributes:
        psnr_db: the peak signal-to-noise ratio of the worst; infinite: nothing.
        largest: the largest error of a number.
        ratio: packed size / size.
    """

    psnr_db: float
    largest: int
    ratio: float

    def __str__(self) -> str:
        return (
            f"PSNR {self.psnr_db:.1f} dB, largest error {self.largest} of 255, "
            f"{self.ratio:.1%} of the bytes"
        )


@dataclass
class _Cost:
    """What an encoding has cost a field so far."""

    ratio: float = 0.0
    ns: float = 0.0


class Packing:
    """Packs observations; finds out, on the first unrolls, how that costs least.

    Attributes:
        losses: of fields that lose something, by name, of all measured unrolls.
    """

    def __init__(
        self,
        spec: EncodingSpec | None = None,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin to measure.

        Args:
            spec: what the experiment says.
            cpu_s: CPU time of this thread so far.
        """
        self._spec = spec or EncodingSpec()
        self._cpu_s = cpu_s
        self._left = MEASURED_UNROLLS
        self._costs: dict[str, dict[Encoding, _Cost]] = {}
        self.losses: dict[str, Loss] = {}

    @property
    def is_measured(self) -> bool:
        """Whether what there was to measure is known."""
        return self._left == 0

    def pack(self, observations: Fields) -> dict[str, Tensor]:
        """Pack each field."""
        if self._left > 0:
            self._left -= 1
            self._measure(observations)
        return {
            name: pack(array, self._encoding(name, array), self._spec.quality)
            for name, array in observations.items()
        }

    def chosen(self, name: str) -> Encoding:
        """Return how a field is packed whose numbers are finite."""
        said = self._spec.of(name)
        return self._cheapest(name) if said is None else said

    def _encoding(self, name: str, array: Array) -> Encoding:
        chosen = self.chosen(name)
        # Who computes discounts must see such a value, and opens only what is RAW.
        if chosen != "RAW" and not _is_finite(array):
            return "RAW"
        return chosen

    def _cheapest(self, name: str) -> Encoding:
        costs = self._costs.get(name, {})
        worth = [
            each
            for each, cost in costs.items()
            if each == "RAW" or cost.ratio <= _PAYS_BELOW
        ]
        return min(worth, key=lambda each: costs[each].ns, default="RAW")

    def _measure(self, observations: Fields) -> None:
        for name, array in observations.items():
            said = self._spec.of(name)
            if not array.nbytes:
                continue
            if said is None:
                self._try_all(name, array)
            elif said in LOSSY and self._spec.quality < LOSSLESS:
                self._note_loss(name, array, said)

    def _try_all(self, name: str, array: Array) -> None:
        costs = self._costs.setdefault(name, {each: _Cost() for each in CANDIDATES})
        for encoding, cost in costs.items():
            if encoding != "RAW":  # whose bytes are all that it costs
                began_s = self._cpu_s()
                tensor = pack(array, encoding)
                tensor.array()
                cost.ns += 1e9 * (self._cpu_s() - began_s)
            else:
                tensor = pack(array)
            cost.ns += BYTE_NS * len(tensor.data)
            cost.ratio = max(cost.ratio, len(tensor.data) / array.nbytes)

    def _note_loss(self, name: str, array: Array, encoding: Encoding) -> None:
        found = loss_of(array, pack(array, encoding, self._spec.quality))
        before = self.losses.get(name, found)
        self.losses[name] = Loss(
            min(found.psnr_db, before.psnr_db),
            max(found.largest, before.largest),
            max(found.ratio, before.ratio),
        )


def loss_of(array: Array, tensor: Tensor) -> Loss:
    """Return what ``tensor`` has lost of ``array`` of uint8."""
    errors = tensor.array().astype(np.int16) - array
    squared = float(np.mean(np.square(errors, dtype=np.int32)))
    psnr_db = 10 * math.log10(_TOP**2 / squared) if squared else math.inf
    return Loss(psnr_db, int(np.abs(errors).max()), len(tensor.data) / array.nbytes)


def _is_finite(array: Array) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
