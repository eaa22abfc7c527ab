"""Options of commands that take one policy version, and what they find."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.errors import BadInput

if TYPE_CHECKING:
    from infra.control.desired import PublishedExperiment
    from infra.policies.download import Downloaded
    from infra.policies.shelf import Kept
    from infra.settings import Settings


def _checked(text: str | None) -> str | None:
    if text in (None, "best", "newest") or (text.isdecimal() and len(text) < 19):
        return text
    raise typer.BadParameter(
        f"expected a number, best or newest, found {text[:40]!r}",
        param_hint="--version",
    )


Version = Annotated[
    str | None,
    typer.Option(
        metavar="V|best|newest",
        callback=_checked,
        help="Which; else the best, or the newest where nobody has found a best.",
    ),
]

Force = Annotated[bool, typer.Option("--force", help="Replace the file.")]


def check_free(path: Path, *, force: bool) -> None:
    """Raise BadInput where a file would be replaced, or has no folder."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BadInput(f"{path}: expected the name of a file in a folder that exists")
    if path.exists() and not force:
        raise BadInput(
            f"{path}: expected no such file, found one", "--force replaces it"
        )


def get_policy(
    settings: Settings, experiment: str, version: str | None
) -> tuple[PublishedExperiment, Kept, Downloaded]:
    """Return an experiment, which of its policies is wanted, and that, verified.

    Raises:
        UnknownExperiment: there is no such experiment.
        NoPolicy: there is no such version; the error says which there are.
        PolicyDamaged: it is not what its digests say.
    """
    from infra.policies.choosing import choose
    from infra.policies.download import download
    from infra.policies.topics import read_shelf

    published, shelf = read_shelf(settings, experiment)
    wanted = int(version) if version is not None and version.isdecimal() else version
    kept = choose(shelf.versions(), wanted)
    return published, kept, download(settings, kept)


def describe(kept: Kept) -> str:
    """Return which version it is, in words."""
    version = kept.version
    roles = {"current": kept.is_current, "best": kept.is_best}
    words = "".join(f", {name}" for name, is_so in roles.items() if is_so)
    return (
        f"version {version.version} (epoch {version.epoch}){words}, after "
        f"{version.train_step:,} updates"
    )
