"""What a learner imports before its first update: that is part of each restart.

No times: they depend on the machine. What takes them is named.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Each more than half a second, or imported by one that is.
HEAVY = ("torch._dynamo", "torch._inductor", "torch.onnx", "sympy", "onnx",
         "onnxruntime", "onnxscript")  # fmt: skip
# All of a resumed learner that needs no broker, by the names that it imports itself.
START = f"""
import gc, sys, time
from learner import train
from infra.control.role import StopRequest
assembly, loop = train._Import(*train.IMPORTED).wait(StopRequest())
assert gc.isenabled()
from learner.background_export import BackgroundExport
from tests.unit.learner_specs import environment, spec
from tests.unit.test_dqn import random_sample
import numpy as np

sample = random_sample(np.random.default_rng(0))
first, second = (assembly.build(environment(), spec()) for _ in range(2))
assert first.update(sample).finite
second.load_state_dict(first.state_dict())
assert second.update(sample).finite
second.policy_tensors()
export = BackgroundExport(second.actor())
print([name for name in {HEAVY!r} if name in sys.modules])
export.start()
while export.graph() is None:
    time.sleep(0.01)
print(len(export.graph().onnx) > 0, [name for name in {HEAVY!r} if name in sys.modules])
"""


def test_a_first_update_needs_neither_compiler_nor_exporter():
    done = subprocess.run(
        [sys.executable, "-c", START],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert before == "[]"
    # They are what the export needs: the names are still those of real modules.
    assert after.startswith("True") and all(name in after for name in HEAVY[:5])
