"""`rollstream dashboard`: what it refuses before it looks for a cluster."""

import sys

import pytest

from infra.errors import SettingsError
from infra.monitoring.dashboard.past import newest_run
from rollstream.cli import main
from rollstream.dashboard_command import read_token
from rollstream.errors import BadInput
from tests.unit.dashboard_server import FakeSource
from tests.unit.test_dashboard_server import snapshot

TOKEN = "0123456789abcdef-token"


@pytest.fixture
def refused(monkeypatch, capsys, data_dir):
    """Run the command on a bare machine; return its code and what it said."""
    monkeypatch.setenv("ROLLSTREAM_DATA_DIR", str(data_dir))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rollstream", "dashboard", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr().err.replace("│", " ")
        return end.value.code, " ".join(shown.split())

    return call


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"  {TOKEN}\n")
    path.chmod(0o600)
    return path


def test_a_token_is_read_from_a_file_of_its_owner(token_file):
    assert read_token(token_file) == TOKEN


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(token_file, mode):
    token_file.chmod(mode)
    with pytest.raises(SettingsError, match="only its owner may read.*chmod 600"):
        read_token(token_file)


def test_a_file_that_holds_no_text_or_is_none_is_refused(token_file, tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        read_token(tmp_path / "none")
    token_file.write_bytes(b"\xff" * 20)
    with pytest.raises(BadInput, match="it is not ASCII"):
        read_token(token_file)


@pytest.mark.parametrize(("size", "fits"), [(4_096, True), (4_097, False)])
def test_a_file_that_is_too_long_is_refused_and_not_cut(token_file, size, fits):
    token_file.write_text("t" * size)
    if fits:
        assert read_token(token_file) == "t" * size
        return
    with pytest.raises(BadInput, match="expected at most 4096 bytes"):
        read_token(token_file)


def test_a_token_with_a_line_end_is_refused_where_it_is_not_read_from_a_file(
    refused, monkeypatch
):
    monkeypatch.setenv("ROLLSTREAM_DASHBOARD_TOKEN", TOKEN + "\n")
    code, error = refused()
    assert code == 2 and "no white space" in error and TOKEN not in error


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--listen", "0.0.0.0:0"), 2, "expected ROLLSTREAM_DASHBOARD_TOKEN or"),
        (("--host-name", "dash.example"), 2, "--host-name dash.example: expected"),
        (("--listen", "8580"), 2, "expected HOST:PORT"),
        (("--token-file", "/nowhere/token"), 2, "cannot be read"),
        ((), 1, "expected a running cluster, found none"),
    ],
)
def test_what_cannot_be_is_refused(refused, arguments, code, told):
    found, error = refused(*arguments)
    assert found == code and told in error


def test_a_poor_token_is_refused_and_not_shown(refused, monkeypatch, token_file):
    monkeypatch.setenv("ROLLSTREAM_DASHBOARD_TOKEN", "poor-one")
    code, error = refused("--listen", "0.0.0.0:0")
    assert code == 2 and "at least 16" in error and "poor-one" not in error
    token_file.write_text("short")
    code, error = refused("--token-file", str(token_file))
    assert code == 2 and "at least 16" in error and "short" not in error


def test_the_newest_run_is_the_snapshots():
    run_of = newest_run(FakeSource(snapshot()))
    assert run_of("a") == "run" and run_of("b") is None
