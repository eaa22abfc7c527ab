"""``HOST:PORT`` of a command line -> where a server is to listen."""

from __future__ import annotations

import typer


def parse_listen(text: str, option: str = "--listen") -> tuple[str, int]:
    """Return the host and the port; the port is 0 for any that is free."""
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and int(port) < 65_536
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and is_number) or (":" in bare and bare == host):
        raise typer.BadParameter(
            f"{option}: expected HOST:PORT, as 127.0.0.1:9308, found {text[:80]!r}"
        )
    return bare, int(port)
