"""What a role process finds in its environment."""

from __future__ import annotations

import os
from typing import get_args

from pydantic import SecretStr

from infra.control.role import PARENT_PID
from infra.settings import Settings

_VARIABLES = {
    # Arithmetic libraries start a thread for each core in every process: slower here.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Importing onnxruntime starts a thread that reports to its makers: nobody has asked
    # for that, and from a process with threads nothing can be forked.
    "ORT_DISABLE_TELEMETRY": "1",
}

# Roles import modules of others: of all secrets they get the one that they need, which
# opens the brokers to them.
_WITHHELD = frozenset(
    str(field.validation_alias).upper()
    for name, field in Settings.model_fields.items()
    if SecretStr in get_args(field.annotation) and name != "sasl_password"
)


def role_environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables of the role processes of this one."""
    return {
        **{k: v for k, v in os.environ.items() if k.upper() not in _WITHHELD},
        **_VARIABLES,
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers or "",
        "ROLLSTREAM_ZOOKEEPER": settings.zookeeper or "",
        "ROLLSTREAM_DATA_DIR": str(settings.data_dir),
        "ROLLSTREAM_ARCHIVES": str(settings.archives),
        PARENT_PID: str(os.getpid()),
        "ROLLSTREAM_ENV_MODULES": ",".join(settings.env_modules),
        "ROLLSTREAM_LEARNER_MODULES": ",".join(settings.learner_modules),
    }
