"""A process that has imported all that a learner needs, and is forked for each.

To import torch takes seconds, and half a minute on a busy machine: too long for each of
dozens of learners of which each is to be killed.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_HOST = """
import json, os, sys
import learner.assembly, learner.loop
from infra.control.role import role_main
from learner.train import run

for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.environ.update(order["environment"])
        sys.argv = ["learner", *order["arguments"]]
        exec(order["prelude"], {})
        role_main("learner", run)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class LearnerHost:
    """Runs one learner after the other, each in a process of its own."""

    def __init__(self):
        """Begin to import; the first learner waits for that."""
        self._begin()

    def _begin(self):
        self._is_busy = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )

    def start(self, rig, prelude):
        """Start a learner; one that a test before has not waited for is ended."""
        if self._is_busy or self._process.poll() is not None:
            self.close()
            self._begin()
        order = {
            "arguments": [rig.name, "--index", "0"],
            "environment": {"ROLLSTREAM_DATA_DIR": str(rig.settings.data_dir)},
            "prelude": prelude,
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        self._is_busy = True

    def wait(self, timeout_s=240.0):
        """Wait for its end; return how it ended, as ``Popen.returncode``."""
        code = self.poll(timeout_s)
        assert code is not None, f"the learner has not ended within {timeout_s:g} s"
        return code

    def poll(self, timeout_s=0.0):
        """Return how it ended; None while it runs."""
        came, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not came:
            return None
        code = int(self._process.stdout.readline())
        self._is_busy = False
        return code

    def close(self):
        """End it, and what is forked from it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture(scope="module")
def learner_host(settings):
    with contextlib.closing(LearnerHost()) as found:
        yield found
