"""A checkpoint's tensors -> the spec by which their networks were made."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from schemas.experiment import Spec

_KERNEL_AXES = 4


def as_saved(spec: Spec, tensors: Iterable[Tensor]) -> Spec:
    """Return the spec that makes networks of a checkpoint's shape.

    ``auto`` was flat before there were encoders of images: what has no convolution was
    made without, and goes on so.

    Args:
        spec: the run's.
        tensors: all of the algorithm's.
    """
    network = spec.learner.network
    has_convolutions = any(tensor.ndim == _KERNEL_AXES for tensor in tensors)
    if network.image_encoder != "auto" or has_convolutions:
        return spec
    flat = network.model_copy(update={"image_encoder": "flat"})
    learner = spec.learner.model_copy(update={"network": flat})
    return spec.model_copy(update={"learner": learner})
