"""What commands that were started have printed, and how they end."""

import json
import signal


def interrupted(process):
    process.send_signal(signal.SIGINT)
    return process.wait(90)


def lines_of(out):
    # The last line may not be whole yet.
    return [json.loads(x) for x in out.read_text().rpartition("\n")[0].splitlines()]
