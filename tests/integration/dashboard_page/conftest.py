"""A page that is open, with snapshots of the test's own."""

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard_page.rig import (
    TIMEOUT_MS,
    Past,
    Source,
    browser,
    experiment,
    moment,
    served,
)


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
