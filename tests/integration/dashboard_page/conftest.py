"""A page that is open, with snapshots of the test's own."""

import contextlib

import pytest
from playwright.sync_api import expect

from tests.integration.dashboard_page.rig import (
    Past,
    Source,
    browser,
    experiment,
    moment,
    served,
    window,
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


@pytest.fixture(scope="module")
def chromium():
    """One for all tests beside each other; each has a window of its own."""
    with browser() as found:
        yield found


@pytest.fixture
def visit(chromium, source, url):
    """Open the page; at the end, nothing may have gone wrong in it."""
    wrong = []
    with contextlib.ExitStack() as windows:

        def go(*, fragment="", width=1280, height=900, **options):
            size = {"width": width, "height": height}
            page = windows.enter_context(
                window(chromium, viewport=size, **options)
            ).new_page()
            page.wrong = wrong
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "console",
                lambda said: said.type == "error" and wrong.append(said.text),
            )
            with source.going_on():
                page.goto(url + fragment)
                expect(page.locator("#connection")).to_have_text("live")
            return page

        yield go
    assert not wrong
