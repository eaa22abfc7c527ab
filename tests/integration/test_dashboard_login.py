"""A token is given to the dashboard in a real Chromium."""

import pytest
from playwright.sync_api import expect

from infra.monitoring.dashboard.access import COOKIE, access_for
from infra.monitoring.dashboard.app import create_app
from tests.integration.dashboard_page.rig import browser, window
from tests.unit.dashboard_server import FakePast, FakeSource, serving
from tests.unit.test_dashboard_server import snapshot

TOKEN = "0123456789abcdef-token"


@pytest.fixture
def url():
    access = access_for("127.0.0.1", TOKEN)
    with serving(create_app(FakeSource(snapshot()), FakePast(), access=access)) as url:
        yield url


def give(page, token):
    """Type it, without a look for the field: a drawn page has it focused."""
    expect(page.locator("input:focus")).to_have_count(1)
    page.keyboard.type(token)
    page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def test_a_token_is_given_by_keyboard_and_the_page_lives(chromium, url):
    with window(chromium) as context:
        page = context.new_page()
        page.goto(url)
        assert page.url == f"{url}login"
        give(page, "wrong-wrong-wrong")
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        assert context.cookies() == []
        give(page, TOKEN)
        # The browser says where its form comes from, and is believed.
        page.wait_for_url(url)
        answer = page.evaluate("fetch('/api/snapshot').then(found => found.json())")
        assert answer["experiments"][0]["experiment"] == "a"
        (cookie,) = context.cookies()
        assert cookie["name"] == COOKIE and cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert page.evaluate("document.cookie") == ""


def test_another_page_on_this_machine_learns_nothing(chromium, url):
    """Neither by asking, nor in a frame, nor with the session that a person has."""
    elsewhere = serving(create_app(FakeSource(), FakePast()))
    with elsewhere as other, window(chromium) as context:
        page = context.new_page()
        page.goto(url)
        give(page, TOKEN)
        page.wait_for_url(url)
        # Of another port, and free of the policy that our own pages have.
        page.route(
            f"{other}evil",
            lambda route: route.fulfill(
                body=f"<iframe src='{url}'></iframe>", content_type="text/html"
            ),
        )
        page.goto(f"{other}evil")
        for mode in ("cors", "no-cors"):
            told = page.evaluate(
                "([url, mode]) => fetch(url, {mode, credentials: 'include'})"
                ".then(found => found.text()).catch(String)",
                [f"{url}api/snapshot", mode],
            )
            assert "experiments" not in told
        framed = page.frames[1]
        assert framed.url.startswith("chrome-error://")
