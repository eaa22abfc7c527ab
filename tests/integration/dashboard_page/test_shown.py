"""What the page shows is what a snapshot says, and texts do nothing."""

import dataclasses

from playwright.sync_api import expect

from infra.monitoring.dashboard import lag_shown
from infra.monitoring.lag.model import Verdict
from infra.monitoring.role_views import Told
from tests.integration.dashboard_page.rig import (
    ALERT,
    EXPERIMENT,
    HOSTILE,
    STALLED,
    experiment,
    field,
    group,
    groups_of,
    moment,
    partition,
    process,
)


def test_the_page_says_what_a_snapshot_says(visit):
    page = visit()
    expect(page.locator("#name")).to_have_text(EXPERIMENT)
    expect(page.locator("#state")).to_have_text("running")
    said = {
        "env_steps": "91,161", "env_steps_per_s": "9,278/s", "updates": "1,427",
        "updates_per_s": "71/s", "loss": "0.0123", "policy_version": "26",
        "episodes": "1,204", "samples_per_insert": "8.1", "wait_ratio": "7 %",
        "policy_lag_versions": "1.4 · p95 3 · max 5", "data_age_s": "1.2 s · p95 6.5 s",
        "policy_lag_s": "1.9 s · p95 4.2 s · max 8.1 s",
    }  # fmt: skip
    for name, text in said.items():
        expect(field(page, name, "#figures")).to_have_text(text)
    glance = page.locator("#glance .big")
    expect(glance).to_have_text(["Yes", "1.2 s old", "Yes", "496.8"])
    expect(page.locator("#overall")).to_have_text("Everyone keeps up")
    expect(page.locator("#processes tbody th")).to_have_text(
        ["evaluator/0", "learner/0", "processor/0", "worker/0", "worker/1"]
    )
    expect(page.locator("#alerts-section")).to_be_hidden()


def test_the_picture_has_rates_lag_and_state_on_each_hop(visit, source):
    page = visit()
    parts = page.locator(".part")
    expect(parts).to_have_count(6)
    wanted = {
        "Environments": ["up", "2 workers", "9,278 steps/s"],
        "trajectories": ["OK", "lag 12", "0.4 s behind", "12/s in, 12/s out"],
        "Processors": ["up", "1 process", "12 unrolls/s", "4 held back"],
        "replay": ["OK", "lag 3", "0.1 s behind"],
        "Learner": ["up", "71 updates/s", "loss 0.0123", "waits 7 %"],
        "policies": ["version 26", "lag 1.4 versions", "adopted in 0.34 s"],
    }
    for title, texts in wanted.items():
        said = page.locator(".part", has_text=title).get_attribute("aria-label")
        assert said.startswith(title)
        for text in texts:
            assert text in said, said
    # What stands still is not drawn as if it flowed; who is silent is told of.
    at_s = source.snapshot.at_s + 30
    view = experiment(at_s=at_s - 29, updates_per_s=0.0)
    stopped = groups_of(EXPERIMENT, consumed_per_s=0.0, verdict=STALLED)
    source.put(moment(view, groups=stopped, at_s=at_s))
    expect(page.locator(".part", has_text="trajectories")).to_have_attribute(
        "data-level", "bad"
    )
    expect(page.locator(".part", has_text="Environments")).to_contain_text("2 silent")
    expect(page.locator(".flow.flows")).to_have_count(2)


def test_updates_arrive_without_reload(visit, source):
    page = visit()
    page.evaluate("window.stays = true")
    source.change(env_steps=123_456, mean_return=-7.25)
    expect(field(page, "env_steps", "#figures")).to_have_text("123,456")
    expect(page.locator("#glance .big").last).to_have_text("−7.25")
    source.change(alerts=(ALERT,), state="degraded", reason="worker/0 failed 8 times")
    expect(page.locator("#alerts li")).to_contain_text("position 88 has not moved")
    expect(page.locator("#announcements")).to_contain_text("1 new alert")
    expect(page.locator("#overall")).to_have_text("1 alert, 1 experiment in trouble")
    expect(page.locator("#icon")).to_have_attribute("href", "/static/favicon-bad.svg")
    expect(page).to_have_title("1 alert, 1 experiment in trouble - rollstream")
    source.change(alerts=(), state="running")
    expect(page.locator("#alerts-section")).to_be_hidden()
    expect(page).to_have_title("rollstream")
    assert page.evaluate("window.stays") is True


def test_groups_are_sorted_by_worst_and_open_to_their_partitions(visit, source):
    bad = group("billing", "payments", 3, "STALLED", lag=40, verdict=STALLED)
    bad = dataclasses.replace(
        bad, partitions=(*bad.partitions, partition("billing", "payments", 3, lag=None))
    )
    warn = group("reports", "payments", 1, "WARN", lag=900)
    others = tuple(group(f"g{n:03}", lag=n) for n in range(60))
    source.put(moment(experiment(), groups=(*others, warn, bad)))
    page = visit()
    names = page.locator("#groups .opener")
    expect(names).to_have_count(40)
    expect(names.nth(0)).to_have_text("billing")
    expect(names.nth(1)).to_have_text("reports")
    expect(field(page, "lag", "#groups")).to_have_text("120")
    expect(field(page, "produced_per_s", "#groups")).to_have_text("49/s")
    page.get_by_role("button", name="Show all 62").click()
    expect(names).to_have_count(62)
    names.nth(0).click()
    inner = page.locator("#groups .more tbody tr")
    expect(inner).to_have_count(4)
    expect(field(page, "end", "#groups .more")).to_have_text("100")
    expect(field(page, "unsaved", "#groups .more")).to_have_text("8")
    expect(inner.last.locator("[data-field=lag]")).to_have_text("–")
    page.get_by_label("only trouble").check()
    expect(names).to_have_text(["billing", "reports"])
    page.get_by_label("Filter consumer groups").fill("REP")
    expect(names).to_have_text(["reports"])


def test_hostile_texts_are_shown_and_do_nothing(visit, source, past):
    past.letters = [
        {"source": HOSTILE, "partition": 0, "offset": 1, "error": HOSTILE, "age_s": 1,
         "role": HOSTILE, "reinjected": False}
    ]  # fmt: skip
    past.told = [
        {"offset": 3, "kind": HOSTILE, "role": HOSTILE, "index": 0, "reason": HOSTILE,
         "severity": HOSTILE, "age_s": 1}
    ]  # fmt: skip
    told = Told(HOSTILE, HOSTILE, 0, HOSTILE, 1, "alert")
    view = experiment(
        state=HOSTILE, reason=HOSTILE, run_id=HOSTILE, managed_by=HOSTILE,
        alerts=(told,), dead_letters=1,
        processes=(process(HOSTILE, 0, {HOSTILE: 1.0}, 1.0),),
    )  # fmt: skip
    verdict = Verdict("WARN", 6, HOSTILE)
    bad = group(HOSTILE, HOSTILE, 2, owner=HOSTILE, verdict=verdict)
    ours = groups_of(EXPERIMENT, verdict=verdict)
    # The name of one that is not asked for: such names are refused.
    views = (view, experiment(HOSTILE))
    shown = moment(*views, groups=(bad, *ours))
    source.put(shown)
    page = visit(fragment=f"#experiment={EXPERIMENT}")
    expect(page.locator("#glance .evidence").first).to_contain_text(HOSTILE)
    source.put(dataclasses.replace(shown, problem=HOSTILE, at_s=shown.at_s + 1))
    page.locator("#groups .opener", has_text=HOSTILE).click()
    for place in (
        "#state", "#reason", "#run", "#banner", "#alerts .reason",
        "#events [data-field=reason]", "#letters [data-field=error]",
        "#groups .opener", "#groups .more th[scope=row]",
        "#experiments li:last-child .name", "#processes th[scope=row]",
    ):  # fmt: skip
        expect(page.locator(place).first).to_contain_text(HOSTILE)
    assert page.locator("body img").count() == 1  # the logo
    assert page.evaluate("window.harmed") is None
    assert not page.wrong


def test_what_is_left_out_of_too_many_groups_is_told(visit, source, monkeypatch):
    page = visit()
    expect(page.locator("#groups-left-out")).to_be_hidden()
    monkeypatch.setattr(lag_shown, "MAX_GROUPS", 3)
    monkeypatch.setattr(lag_shown, "MAX_PARTITIONS", 4)
    others = (group("one", partitions=5), group("fine", lag=0))
    groups = (*groups_of(EXPERIMENT), *others)
    at_s = source.snapshot.at_s + 1
    source.put(moment(experiment(), groups=groups, at_s=at_s))
    expect(page.locator("#groups-left-out")).to_have_text(
        "Too many to show: 1 group and 4 partitions, those that do best, are left out."
    )
    expect(page.locator("#groups-count")).to_have_text("3")
