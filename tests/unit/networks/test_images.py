"""Which fields are images, in which layout, and what the encoders make of them."""

import numpy as np
import pytest
import torch

from learner.networks import Encoder, UnsupportedSpace
from learner.networks.images import ImpalaResnet, NatureCnn
from schemas.images import Image, image_of, scaled_inputs
from schemas.sizes import stacked
from tests.unit.learner_specs import DICT_OBSERVATION, box, discrete
from tests.unit.networks import oracles


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 90), Image(84, 90, 1, channels_last=False)),
        ((84, 90, 1), Image(84, 90, 1, channels_last=True)),
        ((84, 90, 3), Image(84, 90, 3, channels_last=True)),
        ((84, 90, 4), Image(84, 90, 4, channels_last=True)),
        ((4, 84, 90), Image(84, 90, 4, channels_last=False)),
        ((3, 84, 90), Image(84, 90, 3, channels_last=False)),
        ((4, 84, 90, 3), Image(84, 90, 12, channels_last=True)),
        ((4, 3, 84, 90), Image(84, 90, 12, channels_last=False)),
        ((4, 1, 84, 90), Image(84, 90, 4, channels_last=False)),
        ((4, 84, 90, 2), Image(90, 2, 336, channels_last=False)),
        ((84, 84, 12), Image(84, 12, 84, channels_last=False)),
        ((128,), None),
        ((), None),
        ((2, 2, 84, 84, 3), None),
    ],
)
def test_images_are_told_by_shape(shape, expected):
    assert image_of(box(shape, "|u1")) == expected


@pytest.mark.parametrize("dtype", ["<f4", "|i1", "<u2"])
def test_only_bytes_are_images(dtype):
    assert image_of(box((84, 84, 3), dtype)) is None


def random_image(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


# What each layout is as [channels, height, width], said once more by hand.
LAYOUTS = {
    "HW": ((36, 41), lambda x: x[None]),
    "HWC": ((36, 41, 3), lambda x: np.stack([x[..., c] for c in range(3)])),
    "kHW": ((2, 36, 41), lambda x: np.stack([x[0], x[1]])),
    "CHW": ((3, 36, 41), lambda x: x),
    "kCHW": (
        (2, 3, 36, 41),
        lambda x: np.stack([x[k, c] for k in range(2) for c in range(3)]),
    ),
    "kHWC": (
        (2, 36, 41, 3),
        lambda x: np.stack([x[k, ..., c] for k in range(2) for c in range(3)]),
    ),
}


def slow_nature(own, image):
    for i, stride in ((0, 4), (2, 2), (4, 1)):
        kernel, bias = own[f"1.{i}.weight"], own[f"1.{i}.bias"]
        image = oracles.relu(oracles.convolve(image, kernel, bias, stride))
    return oracles.relu(own["3.weight"] @ image.reshape(-1) + own["3.bias"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_natures_network_is_that_of_the_paper(layout):
    shape, channels_first = LAYOUTS[layout]
    images = random_image((2, *shape))
    torch.manual_seed(0)
    network = NatureCnn(image_of(box(shape, "|u1")))
    found = network(torch.from_numpy(images)).detach().numpy()
    own = oracles.weights(network)
    for image, features in zip(images, found, strict=True):
        expected = slow_nature(own, channels_first(image) / 255)
        assert features == pytest.approx(expected, abs=1e-5)
    assert np.abs(found).max() > 0.01


def slow_impala(own, image):
    def convolve(name, image):
        return oracles.convolve(image, own[f"{name}.weight"], own[f"{name}.bias"], 1, 1)

    for section in (1, 2, 3):
        image = oracles.largest_of_three(convolve(f"{section}.0", image))
        for block in (2, 3):
            name = f"{section}.{block}"
            hidden = convolve(f"{name}.first", oracles.relu(image))
            image = image + convolve(f"{name}.second", oracles.relu(hidden))
    features = own["6.weight"] @ oracles.relu(image).reshape(-1) + own["6.bias"]
    return oracles.relu(features)


@pytest.mark.parametrize("shape", [(8, 8, 3), (9, 17), (2, 16, 8)])
def test_impalas_network_is_that_of_the_paper(shape):
    (image,) = random_image((1, *shape))
    torch.manual_seed(0)
    network = ImpalaResnet(image_of(box(shape, "|u1")))
    found = network(torch.from_numpy(image)[None])[0].detach().numpy()
    first = {2: lambda x: x[None], 3: lambda x: x}[image.ndim](image)
    if shape[-1] == 3:
        first = image.transpose(2, 0, 1)
    expected = slow_impala(oracles.weights(network), first / 255)
    assert found == pytest.approx(expected, abs=1e-5)
    assert np.abs(found).max() > 0.01


def num_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_sizes_are_those_of_the_papers():
    atari = image_of(stacked(box((84, 84), "|u1"), 4))
    # 8·8·4·32+32, 4·4·32·64+64, 3·3·64·64+64, 7·7·64·512+512
    assert num_parameters(NatureCnn(atari)) == 8_224 + 32_832 + 36_928 + 1_606_144
    # 16: one of 4 channels, four of 16; 32: one of 16, four of 32; 32: five of 32;
    # then 11·11·32·256+256
    sections = (592 + 4 * 2_320) + (4_640 + 4 * 9_248) + 5 * 9_248
    assert num_parameters(ImpalaResnet(atari)) == sections + 991_488
    assert (NatureCnn.features, ImpalaResnet.features) == (512, 256)


@pytest.mark.parametrize(
    ("encoder", "shape", "least", "found"),
    [
        ("nature", (35, 80, 3), 36, "35 x 80"),
        ("nature", (4, 84, 35), 36, "84 x 35"),
        ("impala", (7, 8), 8, "7 x 8"),
    ],
)
def test_images_too_small_for_an_encoder_are_refused(encoder, shape, least, found):
    field = box(shape, "|u1", "camera")
    with pytest.raises(
        UnsupportedSpace,
        match=f"imageEncoder: expected images of at least {least} x {least} for "
        f"{encoder}, found {found} in 'camera'.*flat takes any size",
    ):
        Encoder((field,), (), encoder)
    assert Encoder((field,), (), "flat").features == np.prod(shape)


@pytest.mark.parametrize("shape", [(36, 40, 3), (35, 40, 3), (4, 128), (4, 84, 84)])
def test_auto_convolves_what_is_large_enough(shape):
    features = Encoder((box(shape, "|u1", "camera"),), (), "auto").features
    size = min(n for n in shape if n not in (3, 4)) if len(shape) == 3 else min(shape)
    assert features == (512 if size >= 36 else np.prod(shape))


@pytest.mark.parametrize("encoder", ["nature", "impala"])
def test_an_encoder_that_would_see_no_image_is_refused(encoder):
    fields = (box((128,), "|u1", "ram"), box((64, 64, 3), "<f4", "camera"))
    with pytest.raises(
        UnsupportedSpace,
        match=rf"imageEncoder: expected an image for {encoder}, .* found 'ram' box "
        r"\|u1 \[128\], 'camera' box <f4 \[64, 64, 3\]: auto and flat take anything",
    ):
        Encoder(fields, (), encoder)
    image = box((64, 64), "|u1", "map")
    assert Encoder((*fields, image), (), encoder).features > 128 + 64 * 64 * 3
    for takes_anything in ("auto", "flat"):
        assert Encoder(fields, (), takes_anything).features == 128 + 64 * 64 * 3


def test_the_smallest_images_are_taken():
    for encoder, size in (("nature", 36), ("impala", 8)):
        field = box((size, size), "|u1")
        assert Encoder((field,), (), encoder)(
            {"": torch.zeros(2, size, size, dtype=torch.uint8)}
        ).shape == (2, {"nature": 512, "impala": 256}[encoder])


@pytest.mark.parametrize("encoder", ["nature", "impala", "flat"])
def test_fields_are_joined_in_order_and_only_what_is_no_image_is_scaled(encoder):
    fields = (box((1,), name="b"), box((36, 36), "|u1", "a"), discrete(2, name="c"))
    torch.manual_seed(0)
    one = Encoder(fields, (), encoder)
    torch.manual_seed(0)
    scaled = Encoder(fields, (10.0, 20.0, 30.0), encoder)
    torch.manual_seed(0)
    all_alike = Encoder(fields, (5.0,), encoder)
    observations = {
        "c": torch.tensor([1]),
        "a": torch.from_numpy(random_image((1, 36, 36))),
        "b": torch.tensor([[2.0]]),
    }
    ((first, *image, off, on),) = one(observations).tolist()
    assert (first, off, on) == (2, 0, 1) and any(image)
    assert len(image) == {"nature": 512, "impala": 256, "flat": 36 * 36}[encoder]
    assert scaled(observations).tolist() == [[20, *image, 0, 30]]
    assert all_alike(observations).tolist() == [[10, *image, 0, 5]]


def test_flat_images_are_divided_by_255():
    encoder = Encoder((box((2, 2), "|u1"),), (3.0,), "flat")
    pixels = torch.tensor([[[0, 51], [102, 255]]], dtype=torch.uint8)
    assert encoder({"": pixels})[0].tolist() == pytest.approx([0, 0.2, 0.4, 1])


def test_a_scale_counts_all_but_images():
    assert scaled_inputs(DICT_OBSERVATION) == 6 + 5 + (3 + 4) + 3
    two_frames = [stacked(field, 2) for field in DICT_OBSERVATION]
    assert scaled_inputs(two_frames) == 2 * 21
