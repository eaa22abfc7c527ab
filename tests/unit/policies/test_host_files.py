"""Files that the processes of a host share: nobody else's, never half of one."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.policies import host_files
from infra.policies.host_files import HostFiles, NotOurs, open_host_files, root_of
from infra.settings import Settings

ROOT = Path(__file__).parents[3]
DATA = b"tensors" * 1000
RUN = "exp/run1"


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def files(root):
    made = HostFiles(root, RUN)
    yield made
    made.close()


def write(files, data):
    with files.turn(1.0) as is_ours:
        assert is_ours
        files.write(sha(data), data)


def directory_of(root, run=RUN):
    return root / sha(run.encode())


def path_of(root, data=DATA):
    return directory_of(root) / sha(data)


def names(root, run=RUN):
    found = {path.name for path in directory_of(root, run).iterdir()}
    return found - {"lock", "users"}


def test_what_one_has_written_another_reads(root, files):
    assert files.read(sha(DATA), len(DATA)) is None
    write(files, DATA)
    other = HostFiles(root, RUN)
    assert other.read(sha(DATA), len(DATA)) == DATA
    other.close()
    assert root.stat().st_mode & 0o777 == 0o700
    assert path_of(root).stat().st_mode & 0o777 == 0o600


def test_another_run_has_files_of_its_own(root, files):
    write(files, DATA)
    other = HostFiles(root, "exp/run2")
    assert other.read(sha(DATA), len(DATA)) is None
    other.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(DATA[:-1]),  # torn
        lambda path: path.write_bytes(DATA[:-1] + b"!"),  # of the right size
        lambda path: path.chmod(0o644),  # anybody may have looked, or more
        lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.unlink(),
    ],
    ids=["torn", "changed", "open to others", "a link", "a directory", "gone"],
)
def test_a_file_that_is_not_what_it_should_be_is_as_good_as_none(root, files, spoil):
    write(files, DATA)
    spoil(path_of(root))
    assert files.read(sha(DATA), len(DATA)) is None


def test_a_changed_file_is_removed_so_that_the_next_one_fetches(root, files):
    write(files, DATA)
    path_of(root).write_bytes(b"!" * len(DATA))
    assert files.has(sha(DATA), len(DATA)), "its name and size are right"
    assert files.read(sha(DATA), len(DATA)) is None
    assert not files.has(sha(DATA), len(DATA))


def test_a_link_is_never_written_through(root, files, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    path_of(root).symlink_to(target)
    (directory_of(root) / f"{sha(DATA)}.part").symlink_to(target)
    write(files, DATA)
    assert target.read_bytes() == b"mine"
    assert files.read(sha(DATA), len(DATA)) == DATA


def test_three_versions_stay_and_what_a_killed_writer_left_does_not(root, files):
    versions = [bytes([i]) * 100 for i in range(5)]
    part = directory_of(root) / f"{sha(b'x')}.part"
    part.write_bytes(b"half of it")
    for at, data in enumerate(versions):
        write(files, data)
        os.utime(path_of(root, data), ns=(at, at))
    assert names(root) == {sha(data) for data in versions[2:]}


def test_no_part_of_a_file_stays_where_there_is_no_room(root, files, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host_files.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write(files, DATA)
    assert names(root) == set()


def test_a_directory_that_others_may_write_to_is_not_used(root, tmp_path):
    root.mkdir(mode=0o755)
    with pytest.raises(NotOurs):
        HostFiles(root, RUN)
    link = tmp_path / "link"
    (tmp_path / "real").mkdir(mode=0o700)
    link.symlink_to(tmp_path / "real")
    with pytest.raises(OSError):
        HostFiles(link, RUN)
    assert not list((tmp_path / "real").iterdir())


def test_a_directory_of_somebody_else_is_not_used(root, monkeypatch):
    root.mkdir(mode=0o700)
    mine = os.geteuid()
    monkeypatch.setattr(host_files.os, "geteuid", lambda: mine + 1)
    with pytest.raises(NotOurs):
        HostFiles(root, RUN)


def test_without_a_directory_nothing_is_shared_and_that_is_said(
    root, monkeypatch, caplog
):
    root.mkdir(mode=0o755)
    monkeypatch.setattr(host_files, "root_of", lambda settings: root)
    assert open_host_files(Settings(), RUN) is None
    assert "each process fetches its own" in caplog.text


def test_memory_is_used_where_there_is_enough_of_it(monkeypatch, tmp_path):
    settings = Settings(cache_dir=tmp_path)
    monkeypatch.setattr(host_files, "SHARED_MEMORY", tmp_path)
    assert root_of(settings) == tmp_path / f"rollstream-{os.geteuid()}"
    monkeypatch.setattr(host_files, "SHARED_MEMORY", tmp_path / "missing")
    assert root_of(settings) == tmp_path / "policies"


def test_whoever_leaves_last_takes_all_along(root):
    one, other = HostFiles(root, RUN), HostFiles(root, RUN)
    write(one, DATA)
    one.close()
    assert other.read(sha(DATA), len(DATA)) == DATA
    other.close()
    assert list(root.iterdir()) == []


def test_what_a_run_without_processes_has_left_is_swept(root):
    left = directory_of(root, "killed/run")
    used = HostFiles(root, "used/run")
    left.mkdir(mode=0o700)
    for name in ("users", "lock", sha(DATA)):
        (left / name).write_bytes(b"")
    used_too = HostFiles(root, RUN)
    assert not left.exists()
    assert directory_of(root, "used/run").exists()
    used.close()
    used_too.close()


HOLDER = """
import sys, time
from pathlib import Path
from infra.policies.host_files import HostFiles
files = HostFiles(Path(sys.argv[1]), sys.argv[2])
with files.turn(10.0) as is_ours:
    print(is_ours, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(root):
    """A process that has the turn."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), RUN],
        stdout=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def test_the_turn_of_a_killed_process_is_given_on(files, holder):
    with files.turn(0.0) as is_ours:
        assert not is_ours
    holder.send_signal(signal.SIGKILL)
    began_s = time.monotonic()
    with files.turn(60.0) as is_ours:
        assert is_ours
    assert time.monotonic() - began_s < 60.0


def test_a_process_that_hangs_is_not_waited_for_for_ever(files, holder):
    holder.send_signal(signal.SIGSTOP)
    with files.turn(0.1) as is_ours:
        assert not is_ours
