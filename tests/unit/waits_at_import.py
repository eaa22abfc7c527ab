"""A module whose import hangs, until there is a file of a name that it is told."""

import os
import time
from pathlib import Path

print("imported by", os.getpid(), flush=True)
while not Path(os.environ["WAITS_FOR"]).exists():
    time.sleep(0.02)
