import builtins
import io
import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from archive import topic_source
from archive.archive_source import ArchiveSource
from archive.archiving import Counts
from infra.errors import RollstreamError
from infra.settings import Settings
from rollstream import archive_command, archive_display
from rollstream.archive_display import ArchiveDisplay
from rollstream.cli import app
from tests.unit.archived_records import plain_unroll, recorded
from tests.unit.memory_source import MemorySource


@pytest.fixture
def source(monkeypatch, tmp_path):
    """The topic of the experiment ``past``, and a machine's directory of archives."""
    rng = np.random.default_rng(0)
    found = MemorySource(
        [recorded(plain_unroll(rng, sequence=s), s) for s in (0, 1, 1)]
    )
    for offset, each in enumerate(found.records):
        object.__setattr__(each.address, "offset", offset)
    monkeypatch.setenv("ROLLSTREAM_ARCHIVES", str(tmp_path))
    monkeypatch.setattr(archive_command, "running", lambda settings: settings)
    monkeypatch.setattr(topic_source, "TopicSource", lambda settings, name: found)
    return found


def run(*words):
    return CliRunner().invoke(app, ["archive", *words])


def test_it_says_what_it_added(source, tmp_path):
    found = run("past")
    assert found.exit_code == 0, found.output
    assert f"archive   {tmp_path}/past/r1" in found.output
    assert "2 records, " in found.output
    assert "1 repeats" in found.output
    figures = json.loads(run("past", "--json").stdout)
    assert figures["records"] == figures["parts"] == figures["behind_records"] == 0
    assert figures["source"] == source.info.identity


def test_json_has_the_figures(source, tmp_path):
    figures = json.loads(run("past", "--json", "--out", str(tmp_path / "x")).stdout)
    (part,) = ArchiveSource(tmp_path / "x").manifest.parts
    expected = {
        "archive": str(tmp_path / "x"),
        "source": "past/r1@t1",
        "records": 2,
        "rows": 12,
        "env_steps": part.valid_rows,
        "parts": 1,
        "bytes": part.bytes,
        "repeats": 1,
        "gap_records": 0,
        "behind_records": 0,
    }
    assert {name: figures[name] for name in expected} == expected


@pytest.mark.parametrize("named", ["past", "past/r1", "{archives}/past/r1"])
def test_every_file_of_an_archive_is_verified(source, tmp_path, named):
    run("past")
    named = named.format(archives=tmp_path)
    found = run(named, "--verify")
    assert (found.exit_code, "fine: 1 parts, 2 records" in found.output) == (0, True)
    (path,) = (tmp_path / "past" / "r1" / "unrolls").iterdir()
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    (tmp_path / "past" / "r1" / "steps" / ".00000-00000000000000000009.tmp").touch()
    found = run(named, "--verify", "--json")
    assert found.exit_code == 1
    ((problem,), left) = [
        json.loads(found.stdout)[0][name] for name in ("problems", "left_over")
    ]
    assert problem.startswith(f"{path}: expected the hash ")
    assert left == ["steps/.00000-00000000000000000009.tmp"]


def test_what_is_no_archive_is_refused(source, tmp_path):
    with pytest.raises(RollstreamError, match="folder of an archive"):
        CliRunner().invoke(app, ["archive", "no", "--verify"], catch_exceptions=False)


def test_without_pyarrow_it_says_what_to_install(source, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "archive.archiving":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RollstreamError, match=r"pip install 'rollstream\[archive\]'"):
        CliRunner().invoke(app, ["archive", "past"], catch_exceptions=False)


def test_without_a_terminal_it_says_how_far_it_is_now_and_then(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(archive_display.time, "monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), width=200)
    counts = Counts()
    with ArchiveDisplay(console, following=False) as display:
        display.begin({0: 7, 1: 3})
        counts.reading, counts.reading_rows = 2, 60
        display.tick(counts)
        clock[0] += 3
        display.tick(counts)
        counts.records, counts.rows, counts.bytes = 10, 300, 2_500_000
        counts.reading = counts.reading_rows = 0
        clock[0] += 3
        display.show(counts, {0: 0, 1: 4})
    assert console.file.getvalue().splitlines() == [
        "2 records, 60 steps, 20 steps/s, 0.0 MB, behind by 8 records",
        "10 records, 300 steps, 50 steps/s, 2.5 MB, behind by 4 records",
    ]


def test_archives_are_where_the_machine_says(monkeypatch, tmp_path):
    monkeypatch.setenv("ROLLSTREAM_DATA_DIR", str(tmp_path))
    assert Settings().archives == tmp_path / "archives"
