"""`spec.workers.encoding`: what it may say, whom a change restarts, what may change."""

import pytest

from schemas.experiment import SpecError, from_values
from schemas.fit import check_fit
from schemas.records import EnvDescription, SpaceField
from schemas.resume import check_resumable
from schemas.role_parts import restarted_roles

CAMERA = SpaceField("camera", "box", "|u1", (84, 84))
SPEED = SpaceField("speed", "box", "<f4", (3,))
ACTION = SpaceField("", "discrete", "<i8", (), n=(2,), start=(0,))
ENV = EnvDescription("Car-v0", (CAMERA, SPEED), (ACTION,), None, "sync", {})


def experiment(**encoding):
    spec = {"env": {"id": "Car-v0"}, "workers": {"encoding": encoding}}
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "car"},
            "spec": spec,
        }
    )


def test_nothing_said_is_measured_and_loses_nothing():
    encoding = experiment().spec.workers.encoding
    assert encoding.of("camera") is None and encoding.lossy == {}


def test_a_field_s_own_word_goes_before_the_default():
    fields = {"camera": "zstd-delta", "speed": "auto", "map": "webp"}
    encoding = experiment(default="lz4-delta", fields=fields).spec.workers.encoding
    found = [encoding.of(name) for name in ("camera", "speed", "map", "other")]
    assert found == ["ZSTD_DELTA", None, "WEBP", "LZ4_DELTA"]
    assert encoding.lossy == {"map": "webp"}


@pytest.mark.parametrize(
    "encoding",
    [
        {"default": "jpegxl"},
        {"default": "webp"},
        {"default": "gzip"},
        {"fields": {"camera": "ZSTD"}},
        {"quality": 0},
        {"quality": 101},
        {"level": 3},
    ],
    ids=str,
)
def test_what_is_refused(encoding):
    with pytest.raises(SpecError, match=r"spec\.workers\.encoding"):
        experiment(**encoding)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"camera": "jpegxl", "speed": "zstd-delta"}, None),
        ({"speed": "webp"}, "expected an image for webp, .*found 'speed' box <f4"),
        ({"Camera": "raw"}, "expected fields of Car-v0, 'camera', 'speed', found"),
    ],
)
def test_fields_have_to_be_there_and_images_where_they_are_lost(fields, says):
    spec = experiment(fields=fields).spec
    if says is None:
        check_fit(spec, ENV)
    else:
        with pytest.raises(SpecError, match=says):
            check_fit(spec, ENV)


def test_a_change_restarts_workers_alone():
    changed = experiment(fields={"camera": "raw"})
    assert restarted_roles(experiment(), changed) == ("worker",)


def test_a_run_goes_on_with_what_loses_nothing_and_not_with_other_losses():
    lossy = experiment(fields={"camera": "jpegxl"})
    for before, now in (
        (experiment(), experiment(default="raw")),
        (experiment(), experiment(fields={"camera": "webp"}, quality=100)),
        (lossy, experiment(fields={"camera": "jpegxl"}, default="lz4")),
    ):
        check_resumable(before, now)
        check_resumable(now, before)
    for other in (
        experiment(),
        experiment(fields={"camera": "webp"}),
        experiment(fields={"camera": "jpegxl"}, quality=80),
        experiment(fields={"camera": "jpegxl", "speed": "webp"}),
    ):
        with pytest.raises(SpecError, match="--fresh starts a new run"):
            check_resumable(lossy, other)
        with pytest.raises(SpecError, match="expected to lose"):
            check_resumable(other, lossy)
