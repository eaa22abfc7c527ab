"""Runs from before there were encoders of images go on with their flat network."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from learner import assembly
from learner.algorithms import build
from learner.algorithms.base import AlgorithmState
from learner.saved_networks import as_saved
from tests.unit.learner_specs import box, environment, spec

CAMERA = environment(box((40, 40, 3), "|u1"))
NETWORK = {"hidden": [8], "observationScale": [0.5]}


def old_state():
    """What a checkpoint of then has: an MLP over all pixels, each of them scaled."""
    shapes = {
        "encoder.scale": (4800,),
        "body.0.weight": (8, 4800),
        "body.0.bias": (8,),
        "head.weight": (2, 8),
        "head.bias": (2,),
    }
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.rand(shape, generator=generator) - 0.5
        for name, shape in shapes.items()
    }
    tensors["encoder.scale"] = torch.full((4800,), 0.5)
    both = {f"network/{k}": v for k, v in tensors.items()}
    both |= {f"target/{k}": v for k, v in tensors.items()}
    rng = np.random.default_rng(1).bit_generator.state
    return tensors, AlgorithmState(both, {"updates": 7, "rng": rng})


def test_a_flat_run_of_images_goes_on_where_the_spec_now_says_auto():
    own, state = old_state()
    wanted = spec(network=NETWORK)
    assert wanted.learner.network.image_encoder == "auto"
    with pytest.raises(ValueError, match="network tensors"):
        build(CAMERA, wanted).load_state_dict(state)
    snapshot = SimpleNamespace(algorithm=state)
    algorithm = assembly._build_algorithm(CAMERA, wanted, snapshot)
    pixels = np.random.default_rng(2).integers(0, 256, (3, 40, 40, 3), np.uint8)
    with torch.no_grad():
        found = algorithm.actor().module({"": torch.from_numpy(pixels)}, {})["q"]
    named = {name: tensor.numpy() for name, tensor in own.items()}
    inputs = pixels.reshape(3, -1) / 255 * 0.5
    hidden = np.maximum(inputs @ named["body.0.weight"].T + named["body.0.bias"], 0)
    expected = hidden @ named["head.weight"].T + named["head.bias"]
    assert found.numpy() == pytest.approx(expected, abs=1e-4)
    assert algorithm.updates == 7


@pytest.mark.parametrize("encoder", ["auto", "nature", "impala", "flat"])
def test_what_is_saved_today_is_restored_by_the_spec_as_it_is(encoder):
    wanted = spec(network=NETWORK | {"imageEncoder": encoder})
    state = build(CAMERA, wanted).state_dict()
    assert as_saved(wanted, state.tensors.values()) == wanted


def test_where_there_is_no_image_it_makes_no_difference():
    wanted = spec()
    state = build(environment(), wanted).state_dict()
    build(environment(), as_saved(wanted, state.tensors.values())).load_state_dict(
        state
    )
