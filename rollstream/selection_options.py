"""The options by which commands choose of a past, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.errors import BadInput

if TYPE_CHECKING:
    from archive.selection import Selection

Since = Annotated[
    str | None,
    typer.Option(
        "--from", help="Only from there: a time with zone, offset:N or step:N."
    ),
]
Until = Annotated[str | None, typer.Option("--to", help="Only before that; as --from.")]
PolicyVersions = Annotated[
    str | None,
    typer.Option(
        "--policy-version",
        help="Only what these did: A..B, A.. or ..B; -1: at random.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option("--worker", help="Only these: indices and ranges, as 0,2-5."),
]
Episodes = Annotated[
    str | None,
    typer.Option(help="Only whole episodes with that, as return>=200,length<500."),
]


def parse_selection(
    since: str | None,
    until: str | None,
    policy_version: str | None,
    worker: str | None,
    episodes: str | None,
) -> Selection:
    """Return what is chosen; raises BadInput."""
    from archive.selection import BadSelection, Selection

    try:
        return Selection.parse(
            since=since,
            until=until,
            versions=policy_version,
            workers=worker,
            episodes=episodes,
        )
    except BadSelection as exc:
        raise BadInput(exc.problem, exc.mend) from exc
