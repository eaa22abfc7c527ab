"""How a role process says why it ended: by its exit code."""

from __future__ import annotations

import os

import pytest

from infra.control import role
from infra.control.role import EXIT_ERROR, EXIT_OK, EXIT_REFUSED, ToldToStop, role_main
from infra.errors import Hopeless, RollstreamError
from producers.env_recipe import EnvRecipe, EnvRefused
from schemas.errors import SchemaError
from schemas.experiment import EnvSpec


class Ended(BaseException):
    """Instead of the end of this process."""


@pytest.fixture
def code_of(monkeypatch):
    def end(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(role, "setproctitle", lambda title: None)
    monkeypatch.setattr(role, "configure_logging", lambda *who: None)
    monkeypatch.setattr(role.logging, "shutdown", lambda: None)
    monkeypatch.setattr(role, "load_context", lambda *which: None)
    monkeypatch.setattr(role.StopRequest, "listen", lambda self: self)

    def run(action):
        with pytest.raises(Ended) as end:
            role_main("worker", lambda context, stop: action(), ["exp"])
        return end.value.args[0]

    return run


def make(modules=(), **spec):
    return lambda: EnvRecipe(EnvSpec.model_validate(spec), modules).make()


def raising(exc):
    def act():
        raise exc

    return act


@pytest.mark.parametrize(
    ("because", "action", "code"),
    [
        ("it was asked to", lambda: 0, EXIT_OK),
        ("before it began", raising(ToldToStop("SIGTERM")), EXIT_OK),
        ("the brokers are away", raising(RollstreamError("away")), EXIT_ERROR),
        ("a record", raising(SchemaError("bad")), EXIT_ERROR),
        ("a bug", raising(ZeroDivisionError()), EXIT_ERROR),
        ("it resets itself, this time", raising(EnvRefused("reset")), EXIT_ERROR),
        ("certain", raising(Hopeless("no such thing")), EXIT_REFUSED),
        ("nobody registers it", make(id="Nowhere-v9"), EXIT_REFUSED),
        ("no such module", make(("no_such_module",), id="CartPole-v1"), EXIT_REFUSED),
        (
            "a module that fails, today",
            make(("tests.unit.out_of_memory",), id="CartPole-v1"),
            EXIT_ERROR,
        ),
        (
            "an unknown wrapper",
            make(id="CartPole-v1", wrappers=[{"name": "Rename"}]),
            EXIT_REFUSED,
        ),
    ],
)
def test_an_exit_code_says_whether_another_start_may_help(
    code_of, because, action, code
):
    assert code_of(action) == code, because
