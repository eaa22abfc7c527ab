"""What cannot be started is one role's failure, told and tried again."""

import errno

import pytest

from infra.control import supervisor as supervision
from infra.control.reconcile import Launch
from infra.control.role import EXIT_REFUSED
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


class Ended:
    pid, returncode = 7, EXIT_REFUSED

    def poll(self):
        return self.returncode


def test_with_somebody_who_sees_to_it_a_start_is_tried_for_ever(
    supervisor, monkeypatch
):
    now_s = [0.0]
    monkeypatch.setattr(supervision.time, "monotonic", lambda: now_s[0])
    supervisor.max_failures, supervisor.keeps_trying = 3, True
    supervisor.start([WORKER])
    exits = []
    for _ in range(40):
        now_s[0] += 50.0  # past the longest delay
        exits += supervisor.poll()
    seen = [gone.unstarted for gone in exits]
    assert seen == list(range(1, len(seen) + 1)) and len(seen) > 15
    view = supervisor.views()[WORKER]
    assert (view.state, view.unstarted) == ("backing-off", len(seen))
    supervisor._spawner.spawn = lambda *_: Running()
    now_s[0] += 50.0
    supervisor.poll()
    view = supervisor.views()[WORKER]
    assert (view.state, view.unstarted) == ("running", 0)


def test_what_is_refused_for_good_is_started_once_for_each_spec(tmp_path):
    started = []

    class Refusing(FullSpawner):
        def spawn(self, *_):
            started.append(Ended())
            return started[-1]

    supervisor = Supervisor(Settings(), "exp", tmp_path / "logs", Refusing(None))
    supervisor.reconcile({WORKER: Launch(7, "aa")}, lambda _: True)
    (gone,) = supervisor.poll()
    assert gone.gave_up and "another start cannot mend it" in gone.given_up_in_words
    assert supervisor.views()[WORKER].state == "failed"
    for offset, starts in ((7, 1), (9, 2)):
        for _ in range(2):
            supervisor.reconcile({WORKER: Launch(offset, "aa")}, lambda _: True)
            supervisor.reconcile({WORKER: Launch(offset, "aa")}, lambda _: True)
            supervisor.poll()
        assert len(started) == starts, "another spec may be another answer"


def test_a_log_that_cannot_be_written_is_a_failure_to_start(tmp_path):
    (tmp_path / "logs" / "learner-0.log").mkdir(parents=True)
    started = []

    class Starting(FullSpawner):
        def spawn(self, *_):
            started.append(self.started)
            return self.started

    supervisor = Supervisor(Settings(), "exp", tmp_path / "logs", Starting(Running()))
    supervisor.start([LEARNER])
    (gone,) = supervisor.poll()
    assert gone.unstarted == 1 and "Is a directory" in gone.last_line
    assert started == [], "a forked one could not even say why"


def test_who_waits_for_its_start_has_no_pid_and_does_not_run_yet(supervisor):
    supervisor.start([LEARNER])
    supervisor._children[LEARNER].process.pid = -1
    assert supervisor.views()[LEARNER].state == "starting"


class Pending:
    """Waits for a fork server."""

    pid, returncode, killed = -1, None, 0

    def poll(self):
        return self.returncode

    def kill(self):
        self.killed += 1


def test_a_start_that_may_not_go_on_is_begun_again_when_it_may(supervisor):
    pending = supervisor._spawner.started = Pending()
    allowed = [True, False, False, True, True]
    supervisor.start([LEARNER])
    states = []
    for may in allowed:
        assert supervisor.poll(lambda _, may=may: may) == [], "nothing has failed"
        states.append(supervisor.views()[LEARNER].state)
    assert states == ["starting", "backing-off", "backing-off", "starting", "starting"]
    assert pending.killed == 1
