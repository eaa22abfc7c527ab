"""Who runs an experiment, when the claim changes hands while we look at it."""

from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError

from infra.control.coordination import AlreadyRuns, Coordination
from infra.settings import Settings


class FakeClient:
    """Answers create and get from lists; a number of tries, then the last for ever."""

    def __init__(self, creates: list[Any], gets: list[Any]) -> None:
        self.creates, self.gets, self.tries = creates, gets, 0

    def create(self, path: str, value: bytes, **options: Any) -> None:
        self.tries += 1
        _raise(self.creates.pop(0) if self.creates[1:] else self.creates[0])

    def get(self, path: str) -> tuple[bytes, None]:
        _raise(self.gets[0])
        return b'{"host": "there", "pid": 7}', None

    def exists(self, path: str, watch: Any) -> None:
        return None


def _raise(error: type[Exception] | None) -> None:
    if error is not None:
        raise error


def coordination(client: FakeClient) -> Coordination:
    found = Coordination(Settings(zookeeper="127.0.0.1:9"))
    found._client = client
    return found


def test_a_claim_that_is_let_go_while_we_look_is_ours() -> None:
    client = FakeClient([NodeExistsError, NodeExistsError, None], [NoNodeError])
    coordination(client).claim_experiment("exp", wait_s=0.0)
    assert client.tries == 3


def test_a_claim_that_is_kept_is_theirs() -> None:
    client = FakeClient([NodeExistsError], [None])
    with pytest.raises(AlreadyRuns, match="found there pid 7"):
        coordination(client).claim_experiment("exp", wait_s=0.0)
    assert client.tries == 2
