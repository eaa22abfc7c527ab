"""This worker's environment and those of the run's other workers: do they agree?"""

from __future__ import annotations

from infra.control.members import read_members
from infra.control.role import RoleContext
from infra.errors import RollstreamError
from producers.worker_report import WorkerReport
from schemas.records import EnvDescription


def check_peers(
    context: RoleContext, env: EnvDescription, report: WorkerReport
) -> None:
    """Compare an environment with those that the run's other workers have described.

    Other versions of packages are a warning.

    Raises:
        RollstreamError: theirs has other spaces.
    """
    for key, (_, member) in read_members(context).items():
        theirs = member.env
        if theirs is None or member.run_id != context.run_id:
            continue
        if key != context.member_key and not env.has_same_spaces(theirs):
            raise RollstreamError(
                f"spaces: expected those of {key}, {theirs.env_id} "
                f"{theirs.observation} {theirs.action}, found {env.env_id} "
                f"{env.observation} {env.action}",
                "install the same version of the environment on every host",
            )
        if dict(theirs.versions) != dict(env.versions):
            reason = f"{key} has {theirs.versions}, this one {env.versions}"
            report.event("package-versions-differ", "warning", reason)
