"""Which state of the experiment a producer follows, whoever writes specs."""

import pytest

from infra.control.role import RoleContext
from infra.kafka.reading import Message
from infra.settings import Settings
from producers.follow import Followed
from schemas.topics import EXPERIMENTS, topic_name
from tests.unit.test_desired import NAME, RUN, record, spec

RUNNING, PAUSED = spec(), spec(spec__state="paused")


@pytest.fixture
def refused():
    return []


@pytest.fixture
def followed(refused):
    # Nobody listens there: what it reads is given to it.
    settings = Settings(bootstrap_servers="127.0.0.1:9")
    context = RoleContext(settings, RUNNING, RUN, "worker", 0, spec_offset=10)
    made = Followed(context, None, None, lambda kind, reason: refused.append(reason))
    yield made
    made.close()


def take(followed, offset, value):
    topic = topic_name(EXPERIMENTS)
    message = Message(topic, 0, offset, 0, NAME, value or b"", value is None)
    followed._take(message)
    return followed.state


def test_a_stale_spec_ends_no_pause(followed, refused):
    assert take(followed, 11, record(10, PAUSED)) == "paused"
    assert take(followed, 12, record(10, RUNNING)) == "paused"  # meant for the first
    assert take(followed, 13, b"garbage") == "paused"
    assert [reason.partition(": ")[0] for reason in refused] == [
        "rollstream.experiments[0] offset 12",
        "rollstream.experiments[0] offset 13",
    ]
    assert take(followed, 14, record(13, RUNNING)) == "running"


def test_what_is_deleted_stays_so_for_a_run_and_another_run_is_not_ours(followed):
    assert take(followed, 11, None) == "deleted"
    assert take(followed, 12, record(10, RUNNING)) == "deleted"
    assert take(followed, 13, record(-1, PAUSED, "run2")) == "deleted"
