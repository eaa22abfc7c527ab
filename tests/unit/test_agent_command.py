"""What an agent is told of itself on the command line."""

from __future__ import annotations

import os

import pytest
import typer

from rollstream.agent_command import parse_capacity, parse_labels


def test_what_is_not_named_is_all():
    assert parse_capacity(None).cpu == os.cpu_count()
    assert parse_capacity("gpu=2").cpu == os.cpu_count()
    assert parse_capacity("cpu=0.5,gpu=2").model_dump() == {"cpu": 0.5, "gpu": 2.0}
    assert parse_labels(["zone=a", "disk=ssd=fast"]) == {
        "zone": "a",
        "disk": "ssd=fast",
    }


@pytest.mark.parametrize(
    "text", ["cpu=many", "disk=1", "cpu=nan", "cpu=-1", "cpu=inf", "cpu", ",", "cpu=1,"]
)
def test_a_capacity_that_makes_no_sense_is_refused(text):
    with pytest.raises(typer.BadParameter, match="expected cpu=N,gpu=N"):
        parse_capacity(text)


@pytest.mark.parametrize("text", ["zone", "=a", "zone=", "z" * 64 + "=a"])
def test_a_label_that_makes_no_sense_is_refused(text):
    with pytest.raises(typer.BadParameter, match="expected NAME=VALUE"):
        parse_labels([text])
