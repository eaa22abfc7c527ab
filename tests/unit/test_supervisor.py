"""What cannot be started is one role's failure, told and tried again."""

import errno

import pytest

from infra.control import supervisor as supervision
from infra.control.scheduler import Assignment
from infra.control.spawning import EXIT_NOT_STARTED
from infra.control.supervisor import Supervisor
from infra.settings import Settings

WORKER = Assignment("worker", 0)
LEARNER = Assignment("learner", 0)


class FullSpawner:
    """Has no more room for workers."""

    def __init__(self, started):
        self.started = started

    def spawn(self, module, argv, env, log_path):
        if "worker" in module:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.started

    def warm(self, env):
        pass


class Running:
    pid, returncode = 7, None

    def poll(self):
        return None


@pytest.fixture
def supervisor(tmp_path):
    return Supervisor(Settings(), "exp", tmp_path / "logs", FullSpawner(Running()))


def test_what_cannot_be_started_fails_alone(supervisor):
    supervisor.start([WORKER, LEARNER])
    (gone,) = supervisor.poll()
    assert (gone.assignment, gone.code) == (WORKER, EXIT_NOT_STARTED)
    assert "No space left on device" in gone.last_line
    assert supervisor.pids() == {LEARNER: 7}


def test_it_is_given_up_after_so_many_failures(supervisor, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(supervision.time, "monotonic", lambda: now_s[0])
    supervisor.max_failures = 3
    supervisor.start([WORKER])
    exits = []
    for _ in range(10):
        now_s[0] += 40.0  # past the longest delay, below what counts as healthy
        exits += supervisor.poll()
    assert [gone.gave_up for gone in exits] == [False, False, True]
    assert supervisor.views()[WORKER].state == "failed"


def test_a_directory_of_logs_that_cannot_be_made_is_a_failure(tmp_path):
    (tmp_path / "file").write_text("")
    supervisor = Supervisor(
        Settings(), "exp", tmp_path / "file" / "logs", FullSpawner(Running())
    )
    supervisor.start([LEARNER])
    (gone,) = supervisor.poll()
    assert "Not a directory" in gone.last_line
