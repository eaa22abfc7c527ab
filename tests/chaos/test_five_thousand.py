"""The sample of 5,000 environments, run as a user runs it: it stays up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from infra.settings import Settings
from tests.chaos.evidence import Evidence
from tests.role_processes import role_processes

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "infra/experiments/cartpole-5000.yaml"
EVERY_S = 2.0
END_S = 280.0
# Half of a small machine; the learner takes most of it.
MAX_TOTAL_MB = 4_000
MAX_WORKER_MB = 80


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("workers", "envs"), [(5, 1000), (50, 100)])
def test_five_thousand_environments_stay_up(
    workers: int, envs: int, settings: Settings, tmp_path: Path, record_fault
) -> None:
    what, log = f"cartpole-{workers}x{envs}", tmp_path / "run.log"
    name = f"{what}-{uuid.uuid4().hex[:8]}"
    wanted = ("spec.workers.replicas", workers), ("spec.workers.envsPerWorker", envs)
    sets = ("metadata.name", name), *wanted
    words = [word for path, value in sets for word in ("--set", f"{path}={value}")]
    command = [sys.executable, "-m", "rollstream.cli", "run", str(SAMPLE), "--json"]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [*command, *words], stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as run,
    ):
        try:
            pss_mb = watch(run, name, workers)
            out, _ = run.communicate(timeout=END_S)
        finally:
            run.kill()
    text = log.read_text()
    assert run.returncode == 0, text
    summary = json.loads(out)
    assert " ended with code " not in text, "nobody was restarted"
    assert role_processes(name) == {}
    assert summary["lost_steps"] == 0
    # Each has sent its first window at least, whether or not the learner kept up.
    assert steps_reported(text) > 0
    mean_mb = sum(v for k, v in pss_mb.items() if "worker" in k) / workers
    assert mean_mb < MAX_WORKER_MB
    assert sum(pss_mb.values()) < MAX_TOTAL_MB
    note = (
        f"{summary['env_steps']:,} steps, {summary['updates']:,} updates, "
        f"{summary['undelivered_steps']:,} undelivered, "
        f"{summary['wall_s']:.0f} s; PSS: a worker {mean_mb:.0f} MB, all roles "
        f"{sum(pss_mb.values()):.0f} MB"
    )
    nothing = Evidence(name, n_step=0, gamma=0.0, reward_scale=0.0)
    record_fault(what, nothing, what="load", injected=0, findings=0, note=note)


def watch(run: subprocess.Popen[str], name: str, workers: int) -> dict[str, float]:
    """Look now and then until it ends; return the memory of when all lived, in MB."""
    heaviest: dict[str, float] = {}
    deadline_s = time.monotonic() + END_S
    while run.poll() is None and time.monotonic() < deadline_s:
        found = {}
        for key, pid in role_processes(name).items():
            try:
                found[key] = psutil.Process(pid).memory_full_info().pss / 2**20
            except psutil.Error:  # it ends
                continue
        if len(found) == workers + 3 and sum(found.values()) > sum(heaviest.values()):
            heaviest = found
        time.sleep(EVERY_S)
    assert heaviest, "never were all there"
    return heaviest


def steps_reported(text: str) -> float:
    rates = re.findall(r"env steps [\d,]+ \(([\d,]+)/s\)", text)
    return max((float(rate.replace(",", "")) for rate in rates), default=0.0)
