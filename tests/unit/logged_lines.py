"""Lines as role processes log them, for tests."""

import json

NOON = "2026-01-02T12:00:00.000Z"
NOON_MS = 1_767_355_200_000


def logged(message, level="INFO", at=NOON, **more):
    values = {"time": at, "level": level, "logger": "x", "message": message, **more}
    return json.dumps(values)


def at(seconds):
    return f"2026-01-02T12:00:{seconds:02d}.000Z"


def write(path, *lines, end="\n"):
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[:-1]) + lines[-1] + end)
