"""The errors of archives.

RollstreamError
└── ArchiveError       an archive cannot be made, or is another one
    └── ArchiveDamaged what is in its files is not what its manifest says
"""

from infra.errors import RollstreamError


class ArchiveError(RollstreamError):
    """An archive cannot be made, opened or continued."""


class ArchiveDamaged(ArchiveError):
    """A file of an archive is missing, or is not what was written."""
