"""A role of producers that is given time to deliver what it has at its end.

``python -m tests.unit.envs.patient worker EXPERIMENT --index 0``: in production it must
end within ten seconds, whatever the broker does; on a busy machine a broker that is
well may be silent for as long.
"""

import os
import sys

FLUSH_S = "TRIAL_FLUSH_S"
"""The environment variable that says how many seconds it may deliver."""


def main() -> None:
    from producers import deliveries, evaluator, worker, worker_report

    deliveries.FLUSH_S = worker.FLUSH_S = float(os.environ[FLUSH_S])
    evaluator.FLUSH_S = worker_report._FLUSH_S = float(os.environ[FLUSH_S])
    {"worker": worker.main, "evaluator": evaluator.main}[sys.argv.pop(1)]()


if __name__ == "__main__":
    main()
