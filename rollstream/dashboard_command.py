"""``rollstream dashboard``: everything at a glance, in a browser."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.errors import SettingsError
from rollstream.errors import BadInput
from rollstream.listening import parse_listen

if TYPE_CHECKING:
    from infra.monitoring.dashboard.access import Access
    from infra.settings import Settings

EPILOG = "Example: rollstream dashboard --open"
_MAX_TOKEN_BYTES = 4_096


def dashboard(
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Others than loopback need a token; port 0: any that is free.",
        ),
    ] = "127.0.0.1:8580",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token, readable by nobody else; or set "
            "ROLLSTREAM_DASHBOARD_TOKEN."
        ),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which browsers know this server, besides its addresses; "
            "repeatable.",
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open it in a browser.")
    ] = False,
) -> None:
    """Show the pipeline, lag, curves and alerts of all experiments in a browser.

    What it shows is read from the topics; it changes nothing. Without a token it is for
    this machine only. Runs until Ctrl-C (exit code 130).
    """
    # Here, not above: nothing else needs a web server.
    from infra.monitoring.dashboard.access import access_for
    from infra.settings import load_settings
    from rollstream.machine import running

    host, port = parse_listen(listen)
    settings = load_settings()
    token = _token(settings, token_file)
    access = access_for(host, token, tuple(host_name or ()))
    _serve(running(settings), host, port, access, open_page=open_page)


def _token(settings: Settings, path: Path | None) -> str | None:
    if path is not None:
        return read_token(path)
    found = settings.dashboard_token
    return found.get_secret_value() if found else None


def read_token(path: Path) -> str:
    """Return the token that a file holds.

    Raises:
        SettingsError: others could read it.
        BadInput: it cannot be read, or is too long for a token.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(
                f"--token-file {path}: expected a file that only its owner may read, "
                f"found mode {path.stat().st_mode & 0o777:o}",
                f"chmod 600 {path}",
            )
        with path.open("rb") as file:
            held = file.read(_MAX_TOKEN_BYTES + 1)
        if len(held) > _MAX_TOKEN_BYTES:
            raise BadInput(
                f"--token-file {path}: expected at most {_MAX_TOKEN_BYTES} bytes, "
                "found more: is it the right file?"
            )
        return held.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not ASCII"
        raise BadInput(f"--token-file {path}: cannot be read: {reason}") from exc


def _serve(
    settings: Settings, host: str, port: int, access: Access, *, open_page: bool
) -> None:
    import webbrowser
    from contextlib import closing

    from infra.monitoring.dashboard.app import create_app
    from infra.monitoring.dashboard.past import TopicPast, newest_run
    from infra.monitoring.dashboard.server import DashboardServer, bind, url_of
    from infra.monitoring.watch import Watch

    with bind(host, port) as listening, Watch(settings) as watch:
        with closing(TopicPast(settings, newest_run(watch))) as past:
            server = DashboardServer(create_app(watch, past, access=access))
            url = url_of(listening)
            print(f"dashboard at {url}; Ctrl-C ends it", flush=True)
            if open_page:
                # A browser that is started may not return before it is closed.
                threading.Thread(
                    target=webbrowser.open, args=(url,), daemon=True
                ).start()
            server.run([listening])
