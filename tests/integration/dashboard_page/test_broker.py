"""The dashboard as it is run, on a real broker, in a real Chromium."""

import re
import uuid
from contextlib import closing

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from playwright.sync_api import expect

from infra.clock import now_ms
from infra.kafka.clients import make_consumer
from infra.kafka.dead_letters import dead_letter
from infra.monitoring.experiment_events import make_event
from schemas.codec import encode
from schemas.records import EpisodesFinished, MetricsPoint, SourceRef, StreamEnd
from schemas.tensors import pack
from schemas.topics import EVENTS, METRICS, TRAJECTORIES, topic_name
from tests.integration.dashboard_page.rig import HOSTILE, browser, window
from tests.integration.dashboard_rig import running_dashboard
from tests.integration.foreign_groups import commit_with
from tests.unit.envs.graphs import RUN_ID
from tests.unit.envs.trial import Trial

pytestmark = pytest.mark.kafka


@pytest.fixture
def trial(settings):
    made = Trial(settings)
    yield made
    made.close()


@pytest.fixture
def committed(settings, trial):
    """Commit an offset of the trajectories for a group; say what the broker has."""
    group = f"foreign-{uuid.uuid4().hex[:8]}"
    topic = trial.context().topic(TRAJECTORIES)
    with closing(make_consumer(settings, group=group, client_id="test")) as consumer:

        def commit(offset):
            commit_with(consumer, [TopicPartition(topic, 0, offset)])

        def truth():
            """The committed offset, the log's end and their difference."""
            (found,) = consumer.committed([TopicPartition(topic, 0)], 60)
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)
            return found.offset, end, end - found.offset

        yield group, commit, truth


def put(trial, count):
    record = encode(StreamEnd(trial.name, RUN_ID, "w0", 0, "over", 0))
    topic = trial.context().topic(TRAJECTORIES)
    for _ in range(count):
        trial.sender.send_and_wait(topic, record, "w0", 0)


def tell(trial, kind, severity, reason):
    event = make_event(trial.name, RUN_ID, "processor", 0, kind, severity, reason)
    topic = topic_name(EVENTS, trial.name)
    trial.sender.send_and_wait(topic, encode(event), "processor/0")


def measure(trial, **values):
    point = MetricsPoint(
        trial.name,
        RUN_ID,
        "learner",
        0,
        0,
        now_ms(),
        {k: float(v) for k, v in values.items()},
    )
    topic = topic_name(METRICS, trial.name)
    trial.sender.send_and_wait(topic, encode(point), "learner/0")


def episodes(trial, *returns):
    n = len(returns)
    record = EpisodesFinished(
        trial.name, RUN_ID, "w0", 1, now_ms(), pack(np.zeros(n, "<i4")),
        pack(np.zeros(n, "<i8")), pack(np.array(returns, "<f8")),
        pack(np.ones(n, "<i4")), pack(np.zeros(n, "i1")), pack(np.zeros(n, "<i8")),
    )  # fmt: skip
    topic = topic_name(METRICS, trial.name)
    trial.sender.send_and_wait(topic, encode(record), "worker/0")


def test_the_page_says_what_the_broker_says(settings, trial, committed):
    group, commit, truth = committed
    put(trial, 10)
    commit(3)
    measure(trial, env_steps=12_345, updates=67, loss=0.25, policy_version=4)
    episodes(trial, 20.0, 30.0)
    source = SourceRef(trial.context().topic(TRAJECTORIES), 1, 5)
    dead_letter(trial.sender, trial.context("processor"), source, b"w0", b"x", HOSTILE)
    trial.sender.flush(60)
    size = {"width": 1280, "height": 900}
    with (
        running_dashboard(settings) as url,
        browser() as chromium,
        window(chromium, viewport=size) as context,
    ):
        page, wrong = context.new_page(), []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console", lambda said: said.type == "error" and wrong.append(said.text)
        )
        page.goto(f"{url}#experiment={trial.name}")
        expect(page.locator("#name")).to_have_text(trial.name)

        def expect_figures(**figures):
            for name, text in figures.items():
                figure = page.locator(f"#figures [data-field={name}]")
                expect(figure).to_have_text(text)

        def expect_truth():
            current, end, lag = truth()
            opener = page.locator(f'[data-group="{group}"]')
            row = page.locator("#groups tbody tr").filter(has=opener)
            expect(row.locator("[data-field=lag]")).to_have_text(str(lag))
            inner = page.locator("#groups .more")
            expect(inner.locator("[data-field=current]")).to_have_text(str(current))
            expect(inner.locator("[data-field=end]")).to_have_text(str(end))
            return lag

        page.get_by_label("Filter consumer groups").fill(group)
        page.locator(f'#groups [data-group="{group}"]').click()
        assert expect_truth() == 7
        expect_figures(
            env_steps="12,345", updates="67", loss="0.25", policy_version="4"
        )
        expect(page.locator("#glance .big").last).to_have_text("25")
        expect(page.locator("#letters [data-field=error]")).to_have_text(HOSTILE)
        # What comes then is shown without that the page is loaded again.
        page.evaluate("window.stays = true")
        put(trial, 5)
        measure(trial, env_steps=20_000, updates=99, loss=0.125, policy_version=5)
        tell(trial, "alert-on", "alert", f"stalled: {HOSTILE}")
        assert expect_truth() == 12
        expect_figures(env_steps="20,000", updates="99", loss="0.125")
        expect(page.locator("#alerts .reason")).to_have_text(HOSTILE)
        commit(15)
        tell(trial, "alert-off", "info", "stalled: 15 records were read")
        assert expect_truth() == 0
        expect(page.locator("#alerts li", has_text=trial.name)).to_have_count(0)
        expect(page.locator("#events")).to_contain_text("15 records were read")
        assert page.evaluate("[window.stays, window.harmed ?? false]") == [True, False]
        # The past comes from the topic, to a page that has not seen it.
        page.reload()
        chart = page.locator("[data-chart=loss]")
        chart.scroll_into_view_if_needed()
        chart.locator(".plot").focus()
        expect(chart.locator(".u-wrap")).to_be_visible()
        page.keyboard.press("Home")
        expect(chart.locator(".plot")).to_have_attribute(
            "aria-label", re.compile(r"0\.25")
        )
        # Brokers that are slow are told of, and asked again.
        assert not [text for text in wrong if "503" not in text]
