"""Whoever sends an event has a kind that is explained; mypy sees to variables."""

import ast
from typing import get_args

from infra.monitoring.event_kinds import KINDS, SEVERITIES, EventKind, Severity
from tests.unit.test_layout import FILES, package_of

SENDERS = {"event", "note", "fail", "crash", "publish", "_report"}
ROLES = {"worker", "processor", "learner", "evaluator", "experiment"}


def kinds_in(text):
    """The words in calls of what sends events, roles and severities left out."""
    for node in ast.walk(ast.parse(text)):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in SENDERS
        ):
            continue
        for argument in [*node.args, *(word.value for word in node.keywords)]:
            if isinstance(argument, ast.Constant) and is_kind(argument.value):
                yield argument.value


def is_kind(value):
    is_word = isinstance(value, str) and value.replace("-", "").isalpha()
    return is_word and value.islower() and value not in ROLES | set(SEVERITIES)


def test_each_kind_is_explained_once():
    assert set(KINDS) == set(get_args(EventKind))
    assert get_args(Severity) == SEVERITIES
    assert all(meaning and len(meaning) < 80 for meaning in KINDS.values())


def test_every_kind_that_is_sent_is_explained():
    sent = {
        (kind, path.name)
        for path in FILES
        if package_of(path) not in ("schemas", "benchmarks")
        for kind in kinds_in(path.read_text())
    }
    assert len(sent) > 30  # the search finds them
    assert {(kind, file) for kind, file in sent if kind not in KINDS} == set()


def test_the_search_finds_a_kind_wherever_it_stands():
    text = 'r.event("some-kind", "alert", "A reason."); e.crash(x, kind="other")'
    assert list(kinds_in(text)) == ["some-kind", "other"]
