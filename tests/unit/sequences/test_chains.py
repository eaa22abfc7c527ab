import numpy as np

from learner.chains import NONE, Chains
from learner.chunks import Chunk, ChunkRef


def chunk(position, steps, envs):
    return Chunk(ChunkRef(0, position, "w0", 0, 0, 0, steps, envs), position, 0)


def test_stretches_run_from_chunk_to_chunk_wherever_those_are():
    chains = Chains()
    for number, one in enumerate([chunk(100, 3, 2), chunk(40, 2, 2), chunk(70, 2, 2)]):
        chains.put(number, one)
    chains.link(0, 1)
    chains.link(1, 2)
    assert [chains.reach(n, 6) for n in range(3)] == [6, 4, 2]
    positions, lengths = chains.rows(np.array([101, 40]), np.array([0, 1]), 6)
    assert lengths.tolist() == [6, 4]
    assert positions[:, 0].tolist() == [101, 103, 105, 41, 43, 71]
    assert positions[:, 1].tolist() == [40, 42, 70, 72, 72, 72]  # the last again
    chains.link(1, NONE)
    assert chains.reach(0, 6) == 5 and not chains.follows(1, 2)


def test_table_grows_and_keeps_what_it_has():
    chains = Chains()
    for number in range(300):
        chains.put(number, chunk(10 * number, 5, 1))
        if number:
            chains.link(number - 1, number)
    assert chains.reach(0, 10_000) == 1500
    positions, _ = chains.rows(np.array([0]), np.array([0]), 1500)
    expected = [10 * (t // 5) + t % 5 for t in range(1500)]
    assert positions[:, 0].tolist() == expected
