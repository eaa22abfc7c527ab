"""Curves: the past, comparing, zooming, and 24 hours that stay smooth."""

import itertools
import math
import random

from playwright.sync_api import expect

from tests.integration.dashboard_page.rig import (
    EXPERIMENT,
    curves,
    expect_drawn,
    experiment,
    field,
    moment,
)


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
    for number in range(4):
        views = (experiment(env_steps=number), experiment("other"))
        source.put(moment(*views, at_s=source.snapshot.at_s + 1))
        for step in range(25):
            at = (number * 25 + step) / 100
            page.mouse.move(box["x"] + box["width"] * at, box["y"] + 20)
            page.wait_for_timeout(20)
    expect(field(page, "env_steps", "#figures")).to_have_text("3")
    share = (spent_s() - before_s) / 4
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
    assert len(drawing) >= 4, "with each snapshot at least"
    # While the cursor moves all the time, and a snapshot comes each second; for how
    # long a frame takes says how busy the machine is.
    assert share < 0.3


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
    # A gap is as wide as it was, also where another experiment has points meanwhile.
    curves = [{"x": [0, 5, 9], "y": [1, None, 2]}, {"x": [3, 4, 6], "y": [7, 8, 9]}]
    aligned = """async (curves) =>
      (await import("/static/js/series.js")).align(curves)
        .map((each) => [...each].map((y) => y === undefined ? "none" : y))"""
    x, first, second = page.evaluate(aligned, curves)
    assert x == [0, 3, 4, 5, 6, 9]
    assert first == [1, None, None, None, None, 2]
    assert second == ["none", 7, 8, "none", 9, "none"]


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
