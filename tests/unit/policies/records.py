"""Records of the topics of policies, made by hand, as messages."""

from collections import Counter
from dataclasses import replace

import numpy as np

from infra.kafka.reading import Message
from schemas.codec import encode
from schemas.records import (
    EnvDescription,
    Evaluation,
    MetricsPoint,
    PolicyChunk,
    PolicyRef,
    SpaceField,
)
from schemas.tensors import pack
from tests.unit.envs.graphs import RUN_ID, graph_record, linear_q, version_record

ENV = EnvDescription(
    "Any-v0",
    (SpaceField("", "box", "<f4", (2,), pack(np.full(2, -9, "<f4")),
                pack(np.full(2, 9, "<f4"))),),
    (SpaceField("", "discrete", "<i8", (), n=(3,), start=(0,)),),
    None,
    "sync",
    {},
)  # fmt: skip
GRAPH = graph_record(linear_q(2, 3), ENV)
ARRAYS = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}  # 9 numbers


def version(number, graph=GRAPH, arrays=ARRAYS, **more):
    return version_record(graph, number, arrays, **more)


def in_chunks(record, size=40, slot=1):
    """The record without its tensors, and the chunks that hold them."""
    data = record.tensors
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = [
        PolicyChunk(
            record.experiment, record.run_id, record.epoch, record.version, slot, i, p
        )
        for i, p in enumerate(parts)
    ]
    return replace(record, tensors=b"", num_chunks=len(chunks), slot=slot), chunks


class Log:
    """Gives records offsets, topic by topic."""

    def __init__(self):
        self._next = Counter()

    def message(self, topic, key, record):
        """The record as it is read; bytes as they are, None as a tombstone."""
        offset = self._next[topic]
        self._next[topic] += 1
        value = record if isinstance(record, bytes | None) else encode(record)
        return Message(topic, 0, offset, 0, key, value or b"", value is None)


def evaluation(number, returns, *, confirmation=False, epoch=0, run_id=RUN_ID):
    returns = np.array(returns, float)
    return Evaluation(
        experiment="exp",
        run_id=run_id,
        policy=PolicyRef(epoch, number),
        train_step=10 * number,
        returns=pack(returns),
        lengths=pack(np.ones(len(returns), np.int32)),
        confirmation=confirmation,
        produced_at_ms=0,
    )


def learner_point(updates, env_steps, run_id=RUN_ID):
    values = {"updates": updates, "env_steps": env_steps}
    return MetricsPoint("exp", run_id, "learner", 0, 0, 0, values)
