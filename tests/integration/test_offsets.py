"""Where logs begin and end, asked of a real broker by clients that know nothing yet."""

import subprocess
import sys

import pytest

from infra.kafka.clients import make_admin
from infra.kafka.offsets import END, ask_offsets, delete_before
from tests.conftest import MakeTopic

pytestmark = pytest.mark.kafka

_ASK_AND_GO = """
import sys
from infra.kafka.clients import make_admin
from infra.kafka.offsets import BEGIN, END, ask_offsets
from infra.settings import load_settings
topics = sys.argv[1:]
for _ in range(100):
    admin = make_admin(load_settings())
    admin.list_topics(topics[0], timeout=60)  # connected, and not more than that
    asked = [ask_offsets(admin, [(topic, 0)], 60.0, BEGIN, END) for topic in topics]
    for begin, end in asked:
        for future in (*begin.values(), *end.values()):
            future.result(60)
"""


def test_who_asks_before_it_knows_any_topic_survives_it(make_topic: MakeTopic) -> None:
    """The client's library frees what it still uses where it does not know a leader."""
    topics = [make_topic() for _ in range(20)]
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _ASK_AND_GO, *topics],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-2000:]


def test_what_nobody_leads_is_told_and_holds_nobody_up(settings, topic) -> None:
    admin = make_admin(settings)
    missing = [("rollstream.none-such", 0), (topic, 7)]
    (asked,) = ask_offsets(admin, [(topic, 0), *missing], 60.0, END)
    assert asked.keys() == {(topic, 0), *missing}
    assert asked[topic, 0].result(60.0).offset == 0
    for place in missing:
        assert "UNKNOWN_TOPIC_OR_PART" in repr(asked[place].exception(0))
    for place, future in delete_before(admin, dict.fromkeys(missing, 1), 60.0).items():
        assert place in missing and future.exception(0) is not None
    assert ask_offsets(admin, [], 0.0, END) == (delete_before(admin, {}, 0.0),) == ({},)


def test_brokers_that_are_away_are_told_of_in_time(settings) -> None:
    admin = make_admin(settings.model_copy(update={"bootstrap_servers": "127.0.0.1:9"}))
    (asked,) = ask_offsets(admin, [("t", 0)], 60.0, END, look_s=0.2)
    (future,) = asked.values()
    assert future.exception(0) is not None
