"""Who runs an experiment, when the claim changes hands while we look at it."""

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    WriterNotClosedException,
)

from infra.control.coordination import AlreadyRuns, Coordination
from infra.errors import RollstreamError
from infra.settings import Settings

OURS, THEIRS = 1, 2


class FakeClient:
    """Answers from lists, the last of each for ever; counts the creates."""

    connected = True

    def __init__(
        self, creates: list[Any], owners: list[Any], *sessions: int | None
    ) -> None:
        self.creates, self.owners, self.tries = creates, owners, 0
        self._sessions = list(sessions) or [OURS]

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        session = _next(self._sessions)  # None: not connected
        return None if session is None else (session, b"")

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
    held = coordination(FakeClient([ConnectionLoss], []))
    with pytest.raises(RollstreamError, match="expected answers within 0 s"):
        held.claim_experiment("exp", answer_s=0.0)


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


def test_a_short_wait_for_a_claim_is_none_for_zookeeper() -> None:
    client = FakeClient([ConnectionLoss, NodeExistsError], [ConnectionLoss, THEIRS])
    with pytest.raises(AlreadyRuns, match="found there pid 7"):
        coordination(client).claim_experiment("exp", wait_s=0.0)


def test_whose_a_claim_is_is_asked_again_where_the_connection_is_lost() -> None:
    """Without a connection no session is known; ours, it would be waited for."""
    client = FakeClient([NodeExistsError], [OURS], None, OURS)
    held = coordination(client)
    held.claim_experiment("exp", wait_s=0.0)
    assert client.tries == 2
    assert held._claims == {"/rollstream/runs/exp"}


def test_what_cannot_be_put_back_without_a_connection_is_tried_again_later() -> None:
    client = FakeClient([None], [None], None)
    held = coordination(client)
    held.register_role("exp", "worker/0", 7)
    assert held._lost.is_set()
    assert client.tries == 0


def test_a_goodbye_that_is_not_answered_is_none_to_wait_for_or_to_tell_of() -> None:
    def stop() -> None:
        raise WriterNotClosedException

    client = FakeClient([], [])
    client.stop = stop  # type: ignore[attr-defined]
    coordination(client).close()
