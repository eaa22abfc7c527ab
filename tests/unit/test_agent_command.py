"""What an agent is told of itself on the command line."""

from __future__ import annotations

import os
import subprocess
import sys

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


SPEAKS = """
import sys
from infra.control.agent_reports import Happening
from rollstream.agent_command import _line_printer, _print_json
show = _line_printer() if sys.argv[1] == "lines" else _print_json
for number in range(3):
    show(Happening("started", "e", "r", "worker", 0, f"[b]{number}[/b]", 7))
print("works on", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("form", ["lines", "json"])
def test_an_agent_that_is_not_heard_works_on(form):
    def speak(stdout):
        return subprocess.run(
            [sys.executable, "-c", SPEAKS, form],
            stdout=stdout, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    heard = speak(subprocess.PIPE)
    assert len(heard.stdout.splitlines()) == 3 and "[b]2[/b]" in heard.stdout
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody_reads, open("/dev/full", "wb") as full:
        unheard = speak(nobody_reads)
        assert (unheard.returncode, unheard.stderr) == (0, "works on\n")
        assert "works on" in speak(full).stderr
