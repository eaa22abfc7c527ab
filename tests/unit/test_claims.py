"""Who runs an experiment, when the claim changes hands while we look at it."""

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)

from infra.control.coordination import AlreadyRuns, Coordination
from infra.errors import RollstreamError
from infra.settings import Settings

OURS, THEIRS = 1, 2


class FakeClient:
    """Answers from lists, the last of each for ever; counts the creates."""

    client_id = (OURS, b"")

    def __init__(self, creates: list[Any], owners: list[Any]) -> None:
        self.creates, self.owners, self.tries = creates, owners, 0

    def create(self, path: str, value: bytes, **options: Any) -> None:
        self.tries += 1
        _next(self.creates)

    def get(self, path: str) -> tuple[bytes, None]:
        return b'{"host": "there", "pid": 7}', None

    def exists(self, path: str, watch: Any = None) -> SimpleNamespace | None:
        owner = _next(self.owners)
        return owner and SimpleNamespace(ephemeralOwner=owner)


def _next(answers: list[Any]) -> Any:
    answer = answers.pop(0) if answers[1:] else answers[0]
    if isinstance(answer, type):
        raise answer
    return answer


def coordination(client: FakeClient) -> Coordination:
    found = Coordination(Settings(zookeeper="127.0.0.1:9"))
    found._client = client
    return found


def test_a_claim_that_is_let_go_while_we_look_is_ours() -> None:
    client = FakeClient([NodeExistsError, NodeExistsError, None], [THEIRS, None])
    coordination(client).claim_experiment("exp", wait_s=0.0)
    assert client.tries == 3


def test_a_claim_that_is_kept_is_theirs() -> None:
    client = FakeClient([NodeExistsError], [THEIRS])
    with pytest.raises(AlreadyRuns, match="found there pid 7"):
        coordination(client).claim_experiment("exp", wait_s=0.0)


def test_a_claim_that_is_gone_when_its_holder_is_to_be_named_is_ours() -> None:
    client = FakeClient([NodeExistsError, None], [THEIRS])
    client.get = lambda path: _next([NoNodeError])  # type: ignore[method-assign]
    coordination(client).claim_experiment("exp", wait_s=0.0)
    assert client.tries == 2


def test_zookeeper_that_is_away_all_the_time_is_told() -> None:
    with pytest.raises(RollstreamError, match="expected answers within 0 s"):
        coordination(FakeClient([ConnectionLoss], [])).claim_experiment("exp", 0.0)


@pytest.mark.parametrize("lost", [ConnectionLoss, SessionExpiredError])
def test_a_claim_whose_answer_was_lost_is_ours(lost: type[Exception]) -> None:
    client = FakeClient([lost, NodeExistsError], [OURS])
    held = coordination(client)
    held.claim_experiment("exp", wait_s=5.0)
    assert client.tries == 2
    assert held._claims == {"/rollstream/runs/exp"}


def test_zookeeper_that_is_away_while_we_wait_is_asked_again() -> None:
    client = FakeClient([NodeExistsError, None], [THEIRS, ConnectionLoss, None])
    coordination(client).claim_experiment("exp", wait_s=5.0)
    assert client.tries == 2
