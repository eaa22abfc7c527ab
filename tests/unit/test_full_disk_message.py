"""What is printed cannot be written."""

import subprocess
import sys

CODE = """
from rollstream.errors import exits_with_a_message
with exits_with_a_message(3):
    print("x" * 100_000, flush=True)
"""


def test_a_full_device_ends_a_command_with_its_code_and_a_line():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 3
    assert done.stderr == (
        "rollstream: No space left on device: what was to be written\n"
    )
