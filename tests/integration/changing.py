"""A process that changes an experiment: adds 1 to its seed, so many times a round.

A line of input begins a round. Prints one line a change: the offset in force, or
``refused``.
"""

import sys
from contextlib import closing

from infra.control.edits import with_values
from infra.control.launching import Contended, SpecWriter
from infra.settings import load_settings


def main():
    name, times = sys.argv[1], int(sys.argv[2])
    settings = load_settings()
    with closing(SpecWriter(settings, name)) as writer:
        writer.read()
        print("ready", flush=True)
        for _ in sys.stdin:
            for _ in range(times):
                try:
                    done = writer.change(add_one)
                except Contended:
                    print("refused", flush=True)
                else:
                    print(done.published.offset, flush=True)


def add_one(experiment):
    return with_values(experiment, {"spec.seed": experiment.spec.seed + 1})


if __name__ == "__main__":
    main()
