"""A past in memory: what a topic is to whoever archives it."""

from archive.recorded import Gap, SourceInfo
from infra.errors import OffsetError
from schemas.experiment import from_values
from schemas.records import EnvDescription, SpaceField
from tests.unit.archived_records import TOPIC

ENV = EnvDescription(
    "CartPole-v1",
    (SpaceField("", "box", "<f4", (4,)),),
    (SpaceField("", "discrete", "<i8", (), n=(2,), start=(0,)),),
    500,
    "sync",
    {"gymnasium": "1"},
)


def experiment(name="past"):
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name},
            "spec": {"env": {"id": "CartPole-v1"}},
        }
    )


class MemorySource:
    """Implements `archive.recorded.Source` over a list of records."""

    def __init__(self, records=(), env=ENV, topic_id="t1"):
        self.info = SourceInfo(experiment(), "r1", TOPIC, topic_id, env)
        self.records = list(records)
        self.starts = {}
        self.lost = []
        self.ends = {}

    def bounds(self):
        found = {p: (s, s) for p, s in self.starts.items()}
        for each in self.records:
            p, offset = each.address.partition, each.address.offset
            start, end = found.get(p, (self.starts.get(p, 0), 0))
            found[p] = start, max(end, offset + 1)
        return {p: (s, max(e, self.ends.get(p, 0))) for p, (s, e) in found.items()}

    def gaps(self):
        return [Gap(*each) for each in self.lost]

    def read(self, partition, first, end):
        if first < self.starts.get(partition, 0):
            raise OffsetError("expired")
        for each in sorted(self.records, key=lambda each: each.address.offset):
            if each.address.partition != partition:
                continue
            if first <= each.address.offset < end:
                yield each

    def close(self):
        pass
