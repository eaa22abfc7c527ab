"""Images by JPEG XL and WebP: nothing is lost at 100, and below what is said."""

import numpy as np
import pytest

from producers.packing import loss_of
from schemas.encodings import LOSSY
from schemas.errors import SchemaError
from schemas.image_codecs import are_images, missing_codecs
from schemas.tensors import Tensor, pack

SHAPES = [(16, 12), (16, 12, 1), (16, 12, 3), (16, 12, 4), (4, 16, 12), (2, 16, 12, 3)]
by_encoding = pytest.mark.parametrize("encoding", sorted(LOSSY))


def images(shape, smooth=False):
    rng = np.random.default_rng(0)
    if not smooth:
        return rng.integers(0, 4, (3, 2, *shape), np.uint8) * 60
    ramp = np.linspace(0, 255, int(np.prod(shape))).reshape(shape)
    noise = rng.normal(0, 3, (3, 2, *shape))
    return np.clip(ramp + noise, 0, 255).astype(np.uint8)


@by_encoding
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_quality_100_loses_nothing(encoding, shape):
    array = images(shape)
    tensor = pack(array, encoding)
    assert np.array_equal(tensor.array(), array)
    assert not tensor.array().flags.writeable


@by_encoding
@pytest.mark.parametrize("shape", [(64, 64), (64, 64, 3), (64, 64, 4)], ids=str)
def test_less_quality_is_less_of_everything(encoding, shape):
    array = images(shape, smooth=True)
    found = [pack(array, encoding, quality) for quality in (90, 30)]
    fine, coarse = (loss_of(array, tensor) for tensor in found)
    assert found[0].encoding == found[1].encoding == encoding
    assert fine.psnr_db > coarse.psnr_db > 20 and fine.ratio > coarse.ratio


def test_the_loss_by_hand():
    array = np.array([[0, 10], [20, 255]], np.uint8)
    other = np.array([[0, 13], [20, 251]], np.uint8)
    # Squares 0, 9, 0, 16: 6.25 in the mean; 10 log10(65025 / 6.25) = 40.172.
    loss = loss_of(array, pack(other))
    assert (round(loss.psnr_db, 3), loss.largest, loss.ratio) == (40.172, 4, 1.0)
    assert str(loss) == "PSNR 40.2 dB, largest error 4 of 255, 100.0% of the bytes"
    assert loss_of(array, pack(array)).psnr_db == float("inf")


@by_encoding
@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 2, 16, 12), np.float32),
        np.zeros((3, 2, 16), np.uint8),
        np.zeros((3, 2), np.uint8),
        np.zeros((3, 2, 16, 12), np.int8),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_what_is_no_image_is_refused(encoding, array):
    assert not are_images(array.dtype.str, array.shape)
    with pytest.raises(SchemaError, match="expected images of uint8"):
        pack(array, encoding)
    with pytest.raises(SchemaError, match=f"expected images for {encoding}"):
        Tensor(array.dtype.str, array.shape, encoding, b"").array()


@by_encoding
def test_sizes_that_do_not_add_up_are_refused(encoding):
    good = pack(images((16, 12)), encoding)
    for data, says in (
        (good.data[:7], "the sizes of 6 images, found 7"),
        (good.data + b"\0", "of 6 images, found"),
        (b"\xff\xff\xff\xff" + good.data[4:], "bytes of 6 images"),
    ):
        with pytest.raises(SchemaError, match=says):
            Tensor(good.dtype, good.shape, encoding, data).array()


def test_where_the_package_is_missing_it_is_said(monkeypatch):
    assert missing_codecs(["pixels"]) is None
    monkeypatch.setattr("schemas.image_codecs.find_spec", lambda name: None)
    assert "rollstream[images]" in (missing_codecs(["pixels"]) or "")
    assert missing_codecs([]) is None
