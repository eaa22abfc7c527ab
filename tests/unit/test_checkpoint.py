"""Checkpoints: whole or not at all, the two newest, and never a garbled one."""

import os
import signal
import subprocess
import sys

import pytest

from learner.checkpoint import CheckpointError, CheckpointStore

FILES = {"state.json": b"{}", "priorities.npy": bytes(range(256)) * 100}


def numbers(store):
    return [int(name.split("-")[1]) for name in store.names()]


def test_what_was_written_is_read_back(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    store.write(12, 3, FILES)
    found, errors = store.newest()
    assert (found.epoch, found.number, dict(found.files)) == (12, 3, FILES)
    assert errors == []


def test_none_is_newest_in_an_empty_place(tmp_path):
    assert CheckpointStore(tmp_path / "nowhere").newest() == (None, [])


def test_two_newest_are_kept_by_epoch_first(tmp_path):
    store = CheckpointStore(tmp_path)
    # A superseded learner of epoch 5 writes on after epoch 9 has begun.
    for epoch, number in ((5, 1), (5, 2), (9, 3), (9, 4), (5, 9)):
        store.write(epoch, number, FILES)
    store.prune()
    assert numbers(store) == [3, 4]


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _to_link(path):
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))


@pytest.mark.parametrize("harm", [_truncate, _flip, os.remove, _to_link])
@pytest.mark.parametrize("file", ["priorities.npy", "state.json", "manifest.json"])
def test_a_garbled_newest_is_named_and_the_one_before_is_used(tmp_path, harm, file):
    store = CheckpointStore(tmp_path)
    store.write(5, 1, FILES)
    newest = store.write(5, 2, FILES)
    harm(newest / file)
    found, errors = store.newest()
    assert found.number == 1
    assert len(errors) == 1 and "000000000005-00000002" in str(errors[0])


def test_names_in_the_manifest_cannot_lead_elsewhere(tmp_path):
    store = CheckpointStore(tmp_path)
    path = store.write(5, 1, FILES)
    manifest = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(manifest.replace("state.json", "../x"))
    with pytest.raises(CheckpointError, match="plain file names"):
        store.read(path.name)


_WRITER = """
import os, signal, sys
from pathlib import Path
from infra import durable
from learner import checkpoint

root, step = Path(sys.argv[1]), sys.argv[2]
store = checkpoint.CheckpointStore(root)
store.write(1, 1, {"a": b"first"})

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    def __getattr__(self, name):
        return die if name == step else getattr(os, name)

if step == "after_first_file":
    whole = checkpoint.write_durably
    def write_one(path, data):
        whole(path, data)
        die()
    checkpoint.write_durably = write_one
elif step == "after_rename":
    rename = os.rename
    checkpoint.os = Dying()
    checkpoint.os.rename = lambda a, b: (rename(a, b), die())
else:
    checkpoint.os = durable.os = Dying()
store.write(1, 2, {"a": b"second", "b": b"more"})
"""


@pytest.mark.parametrize(
    ("step", "survivor"),
    [("after_first_file", 1), ("fsync", 1), ("rename", 1), ("after_rename", 2)],
)
def test_a_kill_at_any_step_leaves_a_whole_checkpoint(tmp_path, step, survivor):
    killed = subprocess.run([sys.executable, "-c", _WRITER, str(tmp_path), step])
    assert killed.returncode == -signal.SIGKILL
    store = CheckpointStore(tmp_path)
    found, errors = store.newest()
    assert (found.number, errors) == (survivor, [])
    store.remove_unfinished()
    assert sorted(os.listdir(tmp_path)) == store.names()


_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from learner.checkpoint import CheckpointError, CheckpointStore

store = CheckpointStore(Path(sys.argv[1]))
store.write(1, 1, {"a": b"x" * 1000})
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    store.write(1, 2, {"a": b"x" * 100_000})
except CheckpointError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
store.write(1, 3, {"a": b"x" * 100_000})
print(store.names())
"""


def test_a_full_disk_is_said_and_the_next_try_succeeds(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    error, names = done.stdout.splitlines()
    assert "cannot be written" in error and "free space" in error
    assert names == "['000000000001-00000001', '000000000001-00000003']"


def test_a_place_that_is_no_directory_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        CheckpointStore(tmp_path / "file" / "checkpoints").write(1, 1, FILES)
