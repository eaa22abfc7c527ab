"""What networks do to the roles: cut off, half deaf, far away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean, check_all
from tests.chaos.evidence import Evidence
from tests.chaos.harness import Harness
from tests.chaos.proxied import Proxied, proxied_cluster, put_behind
from tests.chaos.proxy import Mode
from tests.chaos.recovery import recoveries_s

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.chaos,
    pytest.mark.heavy,
    pytest.mark.timeout(900),
]

BLOCK_S = 60.0
DEAF_S = 15.0
FAR_S = 60.0
FAR = {"delay_ms": 100.0, "kbit_per_s": 3000.0}
FAR_HEALED_S = 180.0
BACK_WITHIN_S = 15.0
# Credit granted before a cut is used up in less; then nobody steps any more.
SETTLED_S = 30.0
ALL = ("worker", "processor", "learner")


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    own = Settings(data_dir=tmp_path / "data", bootstrap_servers=None, zookeeper=None)
    with proxied_cluster(own) as found:
        yield found


def test_workers_that_are_cut_off_wait_and_drop_nothing(
    proxied: Proxied, tmp_path: Path, record_fault
) -> None:
    with Harness(proxied.direct, tmp_path) as harness:
        put_behind(harness, proxied, "worker")
        harness.start()
        cut_at_s = time.time()
        proxied.proxy.set_mode(Mode.BLOCK)
        harness.injected("note", "worker")
        time.sleep(BLOCK_S)  # the fault itself
        healed_at_s = time.time()
        proxied.proxy.heal()
        harness.injected("block", "broker")
        harness.wait_for_progress(acked=1_000, trained=1_000, timeout_s=90.0)
        evidence = harness.finish()
    recovery_s = max(s for _, s in recoveries_s(evidence))
    before, meanwhile = sent_between(evidence, cut_at_s, healed_at_s)
    note = f"sent {before} unrolls after the cut, then none"
    record_fault("F11", evidence, injected=1, note=note)
    assert_clean(evidence)
    assert meanwhile == 0, "without credit or room nobody steps"
    assert recovery_s <= BACK_WITHIN_S
    assert_all_delivered(evidence)


def sent_between(
    evidence: Evidence, cut_at_s: float, healed_at_s: float
) -> tuple[int, int]:
    """Unrolls sent soon after the cut, and in the rest of it."""
    times = [line["at_s"] for line in evidence.of("worker", "sent")]
    settled_at_s = cut_at_s + SETTLED_S
    return (
        sum(cut_at_s < at_s <= settled_at_s for at_s in times),
        sum(settled_at_s < at_s <= healed_at_s for at_s in times),
    )


def assert_all_delivered(evidence: Evidence) -> None:
    """What was sent was acknowledged, each once: dropped = the journals' difference."""
    names = ("worker", "incarnation", "sequence")
    sent, acked = (
        sorted(tuple(line[name] for name in names) for line in evidence.of("worker", k))
        for k in ("sent", "ack")
    )
    assert sent == acked
    assert not any(line["error"] for line in evidence.of("worker", "ack"))


def deafen_workers(proxied: Proxied, harness: Harness) -> Evidence:
    """Their requests arrive, and the answers do not."""
    put_behind(harness, proxied, "worker")
    harness.start()
    harness.injected("note", "broker")
    proxied.proxy.set_mode(Mode.DROP_RESPONSES)
    time.sleep(DEAF_S)  # the fault itself
    proxied.proxy.heal()
    harness.injected("deafen", "broker")
    harness.wait_for_progress(acked=1_000, trained=1_000, timeout_s=90.0)
    evidence = harness.finish()
    assert proxied.proxy.dropped_bytes["down"] > 0
    return evidence


def test_acknowledgements_that_are_lost_double_nothing(
    proxied: Proxied, tmp_path: Path, record_fault
) -> None:
    with Harness(proxied.direct, tmp_path) as harness:
        evidence = deafen_workers(proxied, harness)
    record_fault("F12", evidence)
    assert_clean(evidence)
    assert_all_delivered(evidence)


def test_without_idempotence_the_checker_finds_what_was_doubled(
    proxied: Proxied, tmp_path: Path, record_fault
) -> None:
    modules = "tests.chaos.counting_env,tests.chaos.without_idempotence"
    variables = {"ROLLSTREAM_ENV_MODULES": modules}
    with Harness(proxied.direct, tmp_path, variables=variables) as harness:
        evidence = deafen_workers(proxied, harness)
    findings = check_all(evidence)
    record_fault("F12 (must fail)", evidence, findings=len(findings))
    assert any("again" in f.what for f in findings if f.check == "C2")


def test_far_brokers_on_a_thin_line_are_kept_up_with(
    proxied: Proxied, tmp_path: Path, record_fault
) -> None:
    with Harness(proxied.direct, tmp_path) as harness:
        put_behind(harness, proxied, *ALL)
        harness.start()
        proxied.proxy.slow_down(**FAR)
        harness.injected("slow down", "broker")
        time.sleep(FAR_S)  # the fault itself
        assert harness.left_running(), "they live"
        harness.wait_for_progress(acked=500, trained=500, timeout_s=120.0)
        evidence = harness.finish(FAR_HEALED_S)  # still far away
    record_fault("F13", evidence)
    assert evidence.healed is not None
    print(f"caught up in {evidence.healed.took_s:.0f} s, still far away")
    assert_clean(evidence, without=["C8"])
    assert evidence.healed.is_drained and evidence.healed.took_s <= FAR_HEALED_S
    assert evidence.steps_repeated == 0, "a session that is lost repeats batches"
