"""What the page says when nothing answers, or nothing is there."""

import dataclasses

import pytest
from playwright.sync_api import expect

from infra.monitoring.dashboard.access import access_for
from tests.integration.dashboard_page.rig import (
    EXPERIMENT,
    experiment,
    field,
    moment,
    served,
    window,
)


@pytest.fixture
def page(chromium):
    with window(chromium) as found:
        yield found.new_page()


def test_a_lost_connection_is_told_and_mended(page, source, past):
    with served(source, past) as url, source.going_on():
        page.goto(url)
        expect(page.locator("#connection")).to_have_text("live")
        page.evaluate("window.stays = true")
    expect(page.locator("#connection")).to_have_text("connection lost")
    expect(page.locator("#banner")).to_contain_text("it is tried again")
    expect(page.locator("html")).to_have_class("old")
    expect(field(page, "env_steps", "#figures")).to_have_text("91,161")
    source.change(env_steps=5)
    with served(source, past, int(url.rsplit(":")[-1].strip("/"))), source.going_on():
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("html")).not_to_have_class("old")
        expect(field(page, "env_steps", "#figures")).to_have_text("5")
        assert page.evaluate("window.stays") is True


def test_with_a_token_the_page_is_behind_a_form(page, source, past):
    access = access_for("127.0.0.1", "a-token-of-some-length", ())
    with served(source, past, access=access) as url, source.going_on():
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
    with source.going_on():
        expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#banner")).to_have_text(problem)
    # Nothing is judged by what is from before.
    expect(page.locator("html")).to_have_class("old")
    expect(page.locator("#overall")).to_have_text("Not known now")
    expect(page.locator(".part[data-level=ok], .part[data-level=bad]")).to_have_count(0)
    expect(page.locator(".flow.flows")).to_have_count(0)


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
