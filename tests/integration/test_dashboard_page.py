"""The dashboard's page in a real Chromium, with snapshots that the tests make."""

import dataclasses
import itertools
import math
import random
import time

import pytest
from playwright.sync_api import expect

from infra.monitoring.dashboard.access import access_for
from infra.monitoring.lag.model import Verdict
from infra.monitoring.role_views import Told
from tests.integration.dashboard_page_rig import (
    HOSTILE,
    TIMEOUT_MS,
    Past,
    Source,
    browser,
    experiment,
    group,
    groups_of,
    moment,
    partition,
    process,
    served,
)

EXPERIMENT = "cartpole-dqn"
STALLED = Verdict("STALLED", 4, "position 88 has not moved for 11 s, 12 records wait")
ALERT = Told("alert-on", "processor", 0, f"stalled: {STALLED.reason}", 9_000, "alert")
expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture
def source():
    return Source(moment(experiment()))


@pytest.fixture
def past():
    return Past()


@pytest.fixture
def url(source, past):
    with served(source, past) as address:
        yield address


@pytest.fixture
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def visit(chromium, url):
    """Open the page; at the end, nothing may have gone wrong in it."""
    wrong = []

    def go(*, fragment="", width=1280, height=900, **options):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, **options
        )
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.wrong = wrong
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda said: said.type == "error" and wrong.append(said.text),
        )
        page.goto(url + fragment)
        expect(page.locator("#connection")).to_have_text("live")
        return page

    yield go
    assert not wrong


def field(page, name, within="#chosen"):
    return page.locator(f"{within} [data-field={name}]").first


def curves(hours=1.0, step_s=2.0, seed=0):
    """A past of some hours, in which every series moves."""
    rng, count = random.Random(seed), int(hours * 3600 / step_s)
    end_s = time.time()
    t = [end_s - (count - n) * step_s for n in range(count)]
    names = (
        "return", "env_steps_per_s", "updates_per_s", "loss", "policy_lag_versions",
        "data_age_s", "lag_trajectories", "lag_replay", "lag_s_trajectories",
        "lag_s_replay",
    )  # fmt: skip
    series = {name: [rng.gauss(50, 5) for _ in t] for name in names}
    series["env_steps"] = [100.0 * n for n in range(count)]
    series["eval_return"] = [100.0 if n % 60 == 0 else None for n in range(count)]
    return t, series


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
    source.put(moment(*views, groups=(bad, *ours), problem=HOSTILE))
    page = visit(fragment=f"#experiment={EXPERIMENT}")
    page.locator("#groups .opener", has_text=HOSTILE).click()
    for place in (
        "#state", "#reason", "#run", "#banner", "#alerts .reason",
        "#events [data-field=reason]", "#letters [data-field=error]",
        "#groups .opener", "#groups .more th[scope=row]", "#glance .evidence",
        "#experiments li:last-child .name", "#processes th[scope=row]",
    ):  # fmt: skip
        expect(page.locator(place).first).to_contain_text(HOSTILE)
    assert page.locator("body img").count() == 1  # the logo
    assert page.evaluate("window.harmed") is None
    assert not page.wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(visit, source, scheme):
    warn = group("reports", state="WARN")
    bad = groups_of(EXPERIMENT, verdict=STALLED)
    source.put(moment(experiment(alerts=(ALERT,), dead_letters=2), groups=(*bad, warn)))
    page = visit(color_scheme=scheme)
    faint = page.evaluate("""() => {
      const parse = (text) => text.match(/[\\d.]+/g).map(Number);
      const light = (text) => {
        const [r, g, b] = parse(text).map((v) => v / 255)
          .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
          const found = getComputedStyle(at).backgroundColor;
          if ((parse(found)[3] ?? 1) === 1) return found;
        }
        return "rgb(255, 255, 255)";
      };
      const found = [];
      for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (!own || !node.checkVisibility() || node.closest(".u-wrap")) continue;
        const style = getComputedStyle(node);
        const drawn = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
        const pair = [light(drawn), light(behind(node))].sort((a, b) => b - a);
        const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
        if (ratio < 4.5) found.push([node.textContent, drawn, behind(node), ratio]);
      }
      return found;
    }""")
    assert faint == []


def test_the_theme_follows_the_system_until_one_is_chosen(visit):
    page = visit(color_scheme="dark")

    def lightness():
        return page.evaluate(
            "getComputedStyle(document.documentElement).backgroundColor"
            ".match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
        )

    assert lightness() < 100
    button = page.get_by_role("button", name="Theme")
    button.click()
    expect(button).to_have_text("Theme: light")
    assert lightness() > 600
    page.reload()
    expect(button).to_have_text("Theme: light")
    assert lightness() > 600
    button.click()
    button.click()
    expect(button).to_have_text("Theme: system")
    assert lightness() < 100


@pytest.mark.parametrize("width", [320, 360, 768, 1280, 1920])
def test_nothing_is_wider_than_the_window(visit, source, past, width):
    long = "a" * 63
    past.curves[long] = curves(0.1)
    past.letters = [
        {"source": f"rollstream.{long}.trajectories", "partition": 0, "offset": 10**9,
         "error": "x" * 500, "age_s": 1, "role": "processor", "reinjected": True}
    ]  # fmt: skip
    told = Told("alert-on", "processor", 0, "late: " + "y" * 300, 1, "alert")
    view = experiment(long, alerts=(told,), reason="z" * 300, env_steps=10**12)
    source.put(moment(view, experiment("b")))
    page = visit(fragment=f"#experiment={long}&with=b", width=width)
    page.locator("#groups .opener").first.click()
    expect(page.locator("#comparison tbody tr")).to_have_count(2)
    expect(page.locator(".plot .u-wrap").first).to_be_visible()
    wide = page.evaluate("""() => {
      const scrolls = (node) => node.closest(".scroll, .unseen, .u-wrap, .skip");
      return [document.documentElement.scrollWidth - innerWidth, [
        ...document.querySelectorAll("body *"),
      ].filter((node) => !scrolls(node) && node.checkVisibility())
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5)
        .map((node) => node.outerHTML.slice(0, 80))];
    }""")
    assert wide == [0, []]


def test_all_can_be_done_with_the_keyboard(visit, source, past):
    past.curves = {EXPERIMENT: curves(0.2), "other": curves(0.2, seed=1)}
    source.put(moment(experiment(), experiment("other", mean_return=1.0)))
    page = visit()
    press, focused = page.keyboard.press, page.locator(":focus")
    press("Tab")
    expect(focused).to_have_text("Skip to the experiment")
    press("Enter")
    expect(focused).to_have_attribute("id", "content")
    page.locator("#theme").focus()
    for _ in range(2):
        press("Tab")
    expect(focused).to_contain_text("other")
    press("Enter")
    expect(page.locator("#name")).to_have_text("other")
    # It stays where it is while figures change.
    source.put(moment(experiment(), experiment("other", mean_return=2.0)))
    expect(page.locator("#glance .big").last).to_have_text("2")
    expect(focused).to_contain_text("other")
    page.locator(f'[data-experiment="{EXPERIMENT}"] input').focus()
    press("Space")
    expect(page.locator("#comparison tbody tr")).to_have_count(2)
    page.locator("#ranges [aria-checked=true]").focus()
    press("ArrowRight")
    expect(focused).to_have_text("6 h")
    expect(focused).to_have_attribute("aria-checked", "true")
    page.get_by_role("link", name="trajectories").focus()
    press("Enter")
    expect(focused).to_have_text("rollstream.other.processor")
    expect(focused).to_have_attribute("aria-expanded", "true")
    press("Enter")
    expect(page.locator("#groups .more")).to_have_count(0)
    chart = page.locator("[data-chart=return] .plot")
    chart.focus()
    before = chart.get_attribute("aria-label")
    press("Home")
    expect(page.locator("[data-chart=return] .at")).not_to_be_empty()
    assert chart.get_attribute("aria-label") != before
    press("Escape")
    expect(page.locator("[data-chart=return] .at")).to_be_empty()


def test_what_can_be_used_has_a_name_and_shows_its_focus(visit):
    page = visit()
    page.locator("#groups .opener").first.click()
    nameless = page.evaluate("""() => [...document.querySelectorAll(
      "a, button, input, [tabindex]:not(main), table, svg[role]")]
      .filter((node) => node.checkVisibility())
      .filter((node) => !(node.getAttribute("aria-label") ?? node.textContent).trim()
        && !node.labels?.length)
      .map((node) => node.outerHTML)""")
    assert nameless == []
    page.locator("#theme").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    drawn = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(drawn) == "solid"


def test_a_lost_connection_is_told_and_mended(chromium, source, past):
    page = chromium.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    with served(source, past) as url:
        page.goto(url)
        expect(page.locator("#connection")).to_have_text("live")
        page.evaluate("window.stays = true")
    expect(page.locator("#connection")).to_have_text("connection lost")
    expect(page.locator("#banner")).to_contain_text("it is tried again")
    expect(page.locator("html")).to_have_class("old")
    expect(field(page, "env_steps", "#figures")).to_have_text("91,161")
    source.change(env_steps=5)
    with served(source, past, int(url.rsplit(":")[-1].strip("/"))):
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("html")).not_to_have_class("old")
        expect(field(page, "env_steps", "#figures")).to_have_text("5")
        assert page.evaluate("window.stays") is True


def test_with_a_token_the_page_is_behind_a_form(chromium, source, past):
    access = access_for("127.0.0.1", "a-token-of-some-length", ())
    with served(source, past, access=access) as url:
        page = chromium.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(url)
        for token in ("wrong", "a-token-of-some-length"):
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#name")).to_have_text(EXPERIMENT)
        # Who is signed out meanwhile comes to the form again.
        page.context.clear_cookies()
        page.goto(url)
        expect(page.get_by_label("Token")).to_be_visible()


def test_old_figures_and_problems_are_told(visit, source):
    page = visit()
    expect(page.locator("#connection")).to_contain_text("nothing new for")
    expect(page.locator("html")).to_have_class("old")
    problem = "the brokers do not answer"
    report = dataclasses.replace(source.snapshot.lag, problem=problem)
    at_s = source.snapshot.at_s + 9
    source.put(dataclasses.replace(source.snapshot, lag=report, at_s=at_s))
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#banner")).to_have_text(problem)


def test_nothing_at_all_is_told_as_well(visit, source):
    source.put(moment())
    page = visit()
    expect(page.locator("#no-experiments")).to_be_visible()
    expect(page.locator("#chosen")).to_be_hidden()
    source.put(moment(experiment()))
    expect(page.locator("#name")).to_have_text(EXPERIMENT)
    expect(page.locator("#no-experiments")).to_be_hidden()
    source.put(moment())
    expect(page.locator("#chosen")).to_be_hidden()


def test_history_is_drawn_and_survives_a_reload(visit, past):
    past.curves[EXPERIMENT] = curves(0.5)
    page = visit()
    for _ in range(2):
        for name in ("return", "steps", "lag", "lag-s", "policy-lag", "loss"):
            chart = page.locator(f"[data-chart={name}]")
            expect(chart.locator("canvas")).to_be_visible()
            expect_drawn(page, name)
        legend = page.locator("[data-chart=return] .legend")
        expect(legend).to_contain_text("exploring")
        page.reload()
    # Which part of it is asked for, and in which order, is in the address.
    page.get_by_role("radio", name="24 h").click()
    page.reload()
    expect(page.get_by_role("radio", name="24 h")).to_be_checked()
    assert {last_s for _, last_s in past.asked} == {3600.0, 86_400.0}


def test_experiments_are_compared_side_by_side(visit, source, past):
    past.curves = {name: curves(0.5, seed=n) for n, name in enumerate(("a", "b", "c"))}
    source.put(moment(*(experiment(name) for name in "abc")))
    page = visit()
    expect(page.locator("#comparison-section")).to_be_hidden()
    page.get_by_label("Compare with b").check()
    page.get_by_label("Compare with c").check()
    names = page.locator("#comparison tbody th")
    expect(names).to_have_text(["a", "b", "c"])
    legend = page.locator("[data-chart=loss] .legend li span")
    expect(legend).to_have_text(["a", "b", "c"])
    for axis in ("Since start", "Env steps"):
        page.get_by_role("radio", name=axis).click()
        value = "steps" if axis == "Env steps" else "age"
        expect(page.locator("[data-chart=loss]")).to_have_attribute("data-axis", value)
        page.locator("[data-chart=loss] .plot").focus()
        page.keyboard.press("End")
        text = "env steps" if axis == "Env steps" else "after its start"
        expect(page.locator("[data-chart=loss] .at")).to_contain_text(text)
    page.reload()
    expect(names).to_have_text(["a", "b", "c"])
    page.get_by_label("Compare with b").uncheck()
    expect(legend).to_have_text(["a", "c"])


def test_charts_can_be_zoomed_together(visit, past):
    past.curves[EXPERIMENT] = curves(0.5)
    page = visit()
    page.locator("[data-chart=updates]").scroll_into_view_if_needed()
    expect_drawn(page, "loss")
    box = page.locator("[data-chart=loss] .u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=5)
    page.mouse.up()
    expect(page.locator("#unzoom")).to_be_visible()
    page.locator("#unzoom").click()
    expect(page.locator("#unzoom")).to_be_hidden()


def test_24_hours_of_points_stay_smooth(visit, source, past):
    past.curves = {EXPERIMENT: curves(24.0, 1.0), "other": curves(24.0, 1.0, seed=1)}
    source.put(moment(experiment(), experiment("other")))
    page = visit(fragment="#with=other&range=86400", height=1800)
    expect_drawn(page, "updates")
    inside = page.context.new_cdp_session(page)
    # The processor's time: what others do on this machine is not the page's doing.
    inside.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_s():
        found = inside.send("Performance.getMetrics")["metrics"]
        kinds = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
        return sum(each["value"] for each in found if each["name"] in kinds)

    before_s = spent_s()
    page.evaluate("""() => {
      performance.clearMeasures();
      window.frames_ms = [];
      let last = performance.now();
      const note = (now) => {
        window.frames_ms.push(now - last);
        last = now;
        requestAnimationFrame(note);
      };
      requestAnimationFrame(note);
    }""")
    box = page.locator("[data-chart=loss] .u-over").bounding_box()
    for number in range(8):
        views = (experiment(env_steps=number), experiment("other"))
        source.put(moment(*views, at_s=source.snapshot.at_s + 1))
        for step in range(25):
            at = (number * 25 + step) / 200
            page.mouse.move(box["x"] + box["width"] * at, box["y"] + 20)
            page.wait_for_timeout(20)
    expect(field(page, "env_steps", "#figures")).to_have_text("7")
    share = (spent_s() - before_s) / 8
    frames = page.evaluate("window.frames_ms")
    drawing = page.evaluate(
        "performance.getEntriesByType('measure').map((each) => each.duration)"
    )
    print(
        f"frames: {len(frames)}, p50 {percentile(frames, 50):.0f} ms, p95 "
        f"{percentile(frames, 95):.0f} ms; work: p50 {percentile(drawing, 50):.1f} ms, "
        f"p95 {percentile(drawing, 95):.1f} ms, max {max(drawing):.0f} ms; "
        f"of a processor: {share:.0%}"
    )
    assert len(drawing) > 60
    # While the cursor moves all the time, and a snapshot comes each second.
    assert share < 0.3
    # Quiet, it takes 2 ms and 17 ms; a busy machine takes a multiple of that.
    assert percentile(drawing, 50) < 30
    assert percentile(frames, 50) < 250


def test_points_are_thinned_without_losing_extremes_or_gaps(visit):
    page = visit()
    rng = random.Random(5)
    count, buckets = 20_000, 300
    x = sorted(rng.uniform(0, 1000) for _ in range(count))
    y = [None if rng.random() < 0.001 else rng.gauss(0, 1) for _ in range(count)]
    found = page.evaluate(
        """async ([x, y, buckets]) =>
          (await import("/static/js/series.js")).thin({ x, y }, buckets)""",
        [x, y, buckets],
    )
    assert len(found["x"]) <= 5 * (buckets + 1)
    assert found["x"] == sorted(found["x"])
    kept = set(zip(found["x"], found["y"], strict=True))
    assert kept <= set(zip(x, y, strict=True))
    assert min(filter(None, y)) in found["y"] and max(filter(None, y)) in found["y"]
    width = (x[-1] - x[0]) / buckets
    columns = [math.floor((each - x[0]) / width) for each in x]
    for _, column in itertools.groupby(range(count), columns.__getitem__):
        values = [y[n] for n in column]
        shown = {value for value in values if value in found["y"]}
        assert (None in values) <= (None in shown)
        real = [value for value in values if value is not None]
        assert not real or {min(real), max(real)} <= shown


def test_lines_break_where_nothing_was_told(visit):
    page = visit()
    run = """async ([name, ...rest]) =>
      (await import("/static/js/series.js"))[name](...rest)"""
    found = page.evaluate(
        run, ["compact", [0, 1, 2, 3, 100, 101], [1, None, 2, 3, 4, 5]]
    )
    assert found == {"x": [0, 2, 3, 51.5, 100, 101], "y": [1, 2, 3, None, 4, 5]}
    found = page.evaluate(run, ["compact", [0, 900], [1, 2], True])
    assert found == {"x": [0, 900], "y": [1, 2]}
    found = page.evaluate(run, ["onAxis", "age", [50, 60, 75], None])
    assert found == [0, 10, 25]
    # After a restart from a checkpoint the learner's count goes back for a while.
    found = page.evaluate(run, ["onAxis", "steps", [1, 2, 3, 4], [5, 9, 7, None]])
    assert found == [5, 9, 9, 9]


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def expect_drawn(page, name):
    """Wait until many pixels of a chart have the colour of its first curve."""
    page.wait_for_function(
        """(name) => {
          const canvas = document.querySelector(`[data-chart=${name}] canvas`);
          if (!canvas) return false;
          const probe = document.body.appendChild(document.createElement("i"));
          probe.style.color = "var(--curve-0)";
          const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
          probe.remove();
          const { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          let found = 0;
          for (let n = 0; n < data.length; n += 4) {
            const far = Math.abs(data[n] - r) + Math.abs(data[n + 1] - g) +
              Math.abs(data[n + 2] - b);
            if (data[n + 3] > 128 && far < 24) found++;
          }
          return found > 300;
        }""",
        arg=name,
    )
