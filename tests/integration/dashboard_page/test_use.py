"""The page for everyone: by keyboard, on a phone, light and dark."""

import pytest
from playwright.sync_api import expect

from infra.monitoring.role_views import Told
from tests.integration.dashboard_page.rig import (
    ALERT,
    EXPERIMENT,
    STALLED,
    curves,
    experiment,
    group,
    groups_of,
    moment,
)


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
