"""What is no file is no experiment, and is not waited for; stdin may be one."""

from __future__ import annotations

import io
import os
import socket
import sys

import pytest

from rollstream.client import load
from rollstream.spec_file import load_file, read_values
from schemas.experiment import SpecError, load_values
from tests.unit.test_experiment import SAMPLE


def a_pipe(path):
    os.mkfifo(path)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def a_directory(path):
    path.mkdir()


def a_device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [a_pipe, a_socket, a_directory, a_device])
def test_what_is_no_regular_file_is_refused(tmp_path, make):
    path = tmp_path / "x.yaml"
    make(path)
    with pytest.raises(SpecError, match="x.yaml: expected a regular file or -, found"):
        read_values(path)
    with pytest.raises(SpecError, match="expected a regular file"):
        load(path)


def test_what_is_not_there_says_so(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        read_values(tmp_path / "nothing.yaml")


def test_a_link_to_a_file_is_one(tmp_path):
    path = tmp_path / "link.yaml"
    path.symlink_to(SAMPLE)
    assert read_values(path) == load_values(SAMPLE)


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_stdin_is_read_where_it_is_asked_for(monkeypatch):
    stdin(monkeypatch, SAMPLE.read_bytes())
    found = load_file(type(SAMPLE)("-"), ["spec.seed=7"])
    assert found == load_file(SAMPLE, ["spec.seed=7"]) and found.spec.seed == 7


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "stdin: expected a mapping, found"),
        (b"a: [", "stdin: expected YAML"),
        (b"a: \xff", "stdin: expected UTF-8"),
        (b"a: 1\n" * 60_000, "stdin: expected at most 262,144 bytes"),
    ],
)
def test_stdin_that_is_no_experiment_is_refused(monkeypatch, data, says):
    stdin(monkeypatch, data)
    with pytest.raises(SpecError, match=says):
        read_values(type(SAMPLE)("-"))
