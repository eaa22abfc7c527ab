"""What a worker packs observations by: as the spec says, or as it measured."""

import numpy as np
import pytest

from producers.packing import BYTE_NS, MEASURED_UNROLLS, Packing
from schemas.encoding_spec import EncodingSpec


class Clock:
    """CPU time that an encoding takes by somebody's plan, in the order of asking."""

    def __init__(self, *costs_s):
        self.costs_s, self.now_s, self.asked = costs_s, 0.0, 0

    def __call__(self):
        if self.asked % 2:
            self.now_s += self.costs_s[self.asked // 2 % len(self.costs_s)]
        self.asked += 1
        return self.now_s


def still_frames():
    rng = np.random.default_rng(0)
    return np.repeat(rng.integers(0, 3, (1, 2, 32, 32), np.uint8), 17, axis=0)


def chosen(array, *costs_s, spec=None):
    packing = Packing(spec, Clock(*costs_s))
    for _ in range(MEASURED_UNROLLS):
        packing.pack({"": array})
    assert packing.is_measured
    return packing.pack({"": array})[""].encoding


@pytest.mark.parametrize(
    ("costs_s", "expected"),
    [
        ((0, 1, 1, 1), "ZSTD"),
        ((1, 0, 1, 1), "LZ4"),
        ((1, 1, 0, 1), "ZSTD_DELTA"),
        ((1, 1, 1, 0), "LZ4_DELTA"),
        ((1, 1, 1, 1), "RAW"),
    ],
)
def test_the_cheapest_is_taken(costs_s, expected):
    """Of ZSTD, LZ4 and their deltas, in this order; a second is worth many bytes."""
    frames = still_frames()
    assert BYTE_NS * frames.nbytes < 1e9
    assert chosen(frames, *costs_s) == expected


def test_bytes_count_too():
    """As quick as each other: the smallest, which nobody's clock decides."""
    frames = still_frames()
    sizes = {
        each: len(Packing(EncodingSpec(default=said)).pack({"": frames})[""].data)
        for each, said in (
            ("ZSTD", "zstd"), ("LZ4", "lz4"), ("ZSTD_DELTA", "zstd-delta"),
            ("LZ4_DELTA", "lz4-delta"),
        )
    }  # fmt: skip
    assert chosen(frames, 0, 0, 0, 0) == min(sizes, key=sizes.__getitem__)


def test_noise_stays_raw_however_quick_the_rest_is():
    noise = np.random.default_rng(0).random((33, 4, 4))
    assert chosen(noise, 0, 0, 0, 0) == "RAW"


def test_the_spec_is_obeyed_and_nothing_is_measured():
    def clock():
        raise AssertionError("asked for the time")

    spec = EncodingSpec(default="lz4", fields={"b": "zstd-delta", "c": "raw"})
    packing = Packing(spec, clock)
    packed = packing.pack(dict.fromkeys("abc", still_frames()))
    found = {name: tensor.encoding for name, tensor in packed.items()}
    assert found == {"a": "LZ4", "b": "ZSTD_DELTA", "c": "RAW"}
    assert packing.losses == {}


@pytest.mark.parametrize("said", ["lz4", "zstd", "lz4-delta", "zstd-delta"])
def test_what_is_not_finite_travels_raw_whatever_the_spec_says(said):
    """Processors look for such values, and open only what is RAW."""
    packing = Packing(EncodingSpec(default=said))
    flat = np.zeros((9, 2, 64), np.float32)
    assert packing.pack({"": flat})[""].encoding != "RAW"
    flat[3, 1, 5] = np.nan
    found = packing.pack({"": flat})[""]
    assert found.encoding == "RAW" and np.isnan(found.array()[3, 1, 5])


def test_the_loss_of_the_first_unrolls_is_known():
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 255, 64 * 64).reshape(64, 64)
    packing = Packing(EncodingSpec(fields={"pixels": "jpegxl"}, quality=60))
    for _ in range(MEASURED_UNROLLS):
        assert not packing.is_measured
        noisy = ramp + rng.normal(0, 2, (3, 1, 64, 64))
        array = np.clip(noisy, 0, 255).astype(np.uint8)
        packed = packing.pack({"pixels": array, "speed": np.zeros((3, 1, 2))})
    assert packed["pixels"].encoding == "JPEGXL"
    assert set(packing.losses) == {"pixels"}
    assert 25 < packing.losses["pixels"].psnr_db < 60
    assert packing.losses["pixels"].largest > 0
    lossless = Packing(EncodingSpec(fields={"pixels": "jpegxl"}, quality=100))
    lossless.pack({"pixels": array})
    assert lossless.losses == {}
