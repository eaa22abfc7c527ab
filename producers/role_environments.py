"""The environments of a role process: made at its start, closed at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from infra.control.role import RoleContext
from infra.errors import RollstreamError
from producers.environments import make_environments
from producers.guarded_env import Environments
from producers.watchdog import Watchdog
from producers.worker_report import report_failure


@contextlib.contextmanager
def role_environments(context: RoleContext, num_envs: int) -> Iterator[Environments]:
    """Make the experiment's environments for the block, under a watchdog.

    Raises:
        EnvRefused, EnvFailed: they cannot be made; that is published as well.
    """
    spec = context.spec.env
    with contextlib.ExitStack() as closing:
        watchdog = Watchdog(spec.step_timeout_s)
        closing.callback(watchdog.close)
        try:
            environments = make_environments(spec, num_envs, context.settings, watchdog)
        except RollstreamError as exc:
            report_failure(context, exc)
            raise
        closing.callback(environments.close)
        yield environments
