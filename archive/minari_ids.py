"""Names of Minari datasets -> folders below where they are kept, never out of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from infra.errors import RollstreamError

DATASET_ID = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9_-]{0,127}/){0,8}[A-Za-z0-9_][A-Za-z0-9_-]{0,127}-v\d{1,9}"
)
ROOT = "MINARI_DATASETS_PATH"
DATA = "data"
DATASET_PREFIX = "minari:"
"""Of a dataset's name where it stands for a source, and of the topic of its records."""


class DatasetError(RollstreamError):
    """A Minari dataset cannot be written, or not be read."""


def datasets_root() -> Path:
    """Return where Minari keeps its datasets on this machine."""
    default = Path("~", ".minari", "datasets").expanduser()
    return Path(os.environ.get(ROOT) or default).expanduser().absolute()


def dataset_folder(root: Path, dataset_id: str) -> Path:
    """Return the folder of a dataset below ``root``.

    Raises:
        DatasetError: it is no id, or the folder is a link to another place.
    """
    if not DATASET_ID.fullmatch(dataset_id):
        raise DatasetError(
            "dataset id: expected NAME/x-v0, of letters, digits, '_' and '-', found "
            f"{dataset_id[:80]!r}"
        )
    folder = root / dataset_id
    for each in (folder / DATA, folder, *folder.parents):
        if each == root:
            break
        if each.is_symlink():
            raise DatasetError(
                f"dataset {dataset_id}: expected folders below {root}, found that "
                f"{each} is a link",
                "move the dataset itself there",
            )
    return folder
