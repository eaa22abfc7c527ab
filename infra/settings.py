"""Environment variables -> where this machine runs: brokers, directories, security.

What an experiment *is* never comes from here: see `schemas.experiment`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import platformdirs
from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from infra.errors import SettingsError

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SASL_PASSWORD = "ROLLSTREAM_KAFKA_SASL_PASSWORD"
_ALERT_WEBHOOK = "ROLLSTREAM_ALERT_WEBHOOK"


def _is_web_address(text: str) -> bool:
    """Whether it may be posted to as it is; nothing in it is a header or a password."""
    if not text.isascii() or not text.isprintable() or " " in text:
        return False
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        return False
    is_whole = bool(found.hostname) and "@" not in found.netloc and port != 0
    return found.scheme in ("http", "https") and is_whole


def _is_host_port(text: str) -> bool:
    match = _HOST_PORT.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 65536


class Settings(BaseSettings):
    """Where we run; immutable, and printable: the password is masked."""

    model_config = SettingsConfigDict(
        frozen=True,
        populate_by_name=True,
        extra="ignore",
        # `VAR= rollstream ...` means "not set", as in a shell.
        env_ignore_empty=True,
        validate_default=False,
    )

    bootstrap_servers: str | None = Field(
        default=None, validation_alias="KAFKA_BOOTSTRAP_SERVERS"
    )
    """Brokers as host:port[,host:port]; None: a local broker."""

    zookeeper: str | None = Field(default=None, validation_alias="ROLLSTREAM_ZOOKEEPER")
    """ZooKeeper as host:port[,host:port][/chroot]; None: a local one."""

    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("rollstream")),
        validation_alias="ROLLSTREAM_DATA_DIR",
    )
    """Local cluster, checkpoints, archives and runs."""

    cache_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("rollstream")),
        validation_alias="ROLLSTREAM_CACHE_DIR",
    )
    """What can be downloaded again: the jars."""

    archives_dir: Path | None = Field(
        default=None, validation_alias="ROLLSTREAM_ARCHIVES"
    )
    """Where archives are, and are made; None: ``archives`` in the data directory."""

    env_modules: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias="ROLLSTREAM_ENV_MODULES"
    )
    """Modules that workers import, for environments and wrappers."""

    learner_modules: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias="ROLLSTREAM_LEARNER_MODULES"
    )
    """Modules that learners import, for networks and algorithms."""

    registry_token: SecretStr | None = Field(
        default=None, validation_alias="ROLLSTREAM_REGISTRY_TOKEN"
    )
    """What clients of `rollstream registry` have to send, as `Bearer`."""

    dashboard_token: SecretStr | None = Field(
        default=None, validation_alias="ROLLSTREAM_DASHBOARD_TOKEN"
    )
    """What `rollstream dashboard` asks of who opens it from another machine."""

    alert_webhook: SecretStr | None = Field(
        default=None, validation_alias=_ALERT_WEBHOOK
    )
    """Where alerts of experiments that ask for it are posted: whoever knows the address
    may post there, so it is a secret."""

    security_protocol: SecurityProtocol = Field(
        default="PLAINTEXT", validation_alias="ROLLSTREAM_KAFKA_SECURITY_PROTOCOL"
    )
    sasl_mechanism: SaslMechanism | None = Field(
        default=None, validation_alias="ROLLSTREAM_KAFKA_SASL_MECHANISM"
    )
    sasl_username: str | None = Field(
        default=None, validation_alias="ROLLSTREAM_KAFKA_SASL_USERNAME"
    )
    sasl_password: SecretStr | None = Field(
        default=None, validation_alias=_SASL_PASSWORD
    )
    ca_file: Path | None = Field(
        default=None, validation_alias="ROLLSTREAM_KAFKA_CA_FILE"
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_brokers(cls, value: str | None) -> str | None:
        if value is None:
            return None
        hosts = [part.strip() for part in value.split(",")]
        if not all(map(_is_host_port, hosts)):
            raise ValueError("expected host:port[,host:port...]")
        return ",".join(hosts)

    @field_validator("zookeeper")
    @classmethod
    def _check_zookeeper(cls, value: str | None) -> str | None:
        if value is None:
            return None
        hosts, _, chroot = value.partition("/")
        parts = [part.strip() for part in hosts.split(",")]
        if not all(map(_is_host_port, parts)):
            raise ValueError("expected host:port[,host:port...][/path]")
        return ",".join(parts) + (f"/{chroot}" if chroot else "")

    @field_validator("data_dir", "cache_dir", "archives_dir")
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        path = value.expanduser().absolute()
        if path.exists() and not path.is_dir():
            raise ValueError("expected a directory, or a path where one can be made")
        return path

    @field_validator("alert_webhook")
    @classmethod
    def _check_webhook(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _is_web_address(value.get_secret_value()):
            raise ValueError(
                "expected http://host/... or https://host/..., without a user"
            )
        return value

    @field_validator("ca_file")
    @classmethod
    def _check_ca_file(cls, value: Path | None) -> Path | None:
        if value is not None and not value.expanduser().is_file():
            raise ValueError("expected the path of a PEM file that exists")
        return None if value is None else value.expanduser().absolute()

    @field_validator("env_modules", "learner_modules", mode="before")
    @classmethod
    def _split_modules(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        names = tuple(part.strip() for part in value.split(",") if part.strip())
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError("expected module names as in `import`: a,b.c")
        return names

    @model_validator(mode="after")
    def _check_security(self) -> Self:
        sasl = self.security_protocol.startswith("SASL_")
        given = [self.sasl_mechanism, self.sasl_username, self.sasl_password]
        if sasl and None in given:
            raise ValueError(
                "ROLLSTREAM_KAFKA_SASL_MECHANISM, _SASL_USERNAME and _SASL_PASSWORD: "
                f"expected all three with {self.security_protocol}, found "
                f"{sum(item is not None for item in given)} of them"
            )
        if not sasl and any(item is not None for item in given):
            raise ValueError(
                "ROLLSTREAM_KAFKA_SECURITY_PROTOCOL: expected SASL_SSL or "
                "SASL_PLAINTEXT where SASL_* variables are set, found "
                f"{self.security_protocol}"
            )
        if self.security_protocol != "PLAINTEXT" and self.bootstrap_servers is None:
            raise ValueError(
                "KAFKA_BOOTSTRAP_SERVERS: expected brokers for "
                f"{self.security_protocol} (the local broker speaks PLAINTEXT), "
                "found nothing"
            )
        return self

    @property
    def archives(self) -> Path:
        """Where archives are."""
        return self.archives_dir or self.data_dir / "archives"

    def at(self, bootstrap_servers: str, zookeeper: str) -> Settings:
        """Returns these settings, pointing at a cluster that runs."""
        return self.model_copy(
            update={"bootstrap_servers": bootstrap_servers, "zookeeper": zookeeper}
        )


def load_settings() -> Settings:
    """Reads the environment.

    Raises:
        SettingsError: Names each wrong variable, what was expected and found.
    """
    try:
        return Settings()
    except ValidationError as exc:
        # `from None`: pydantic's own text repeats the input, passwords included.
        raise SettingsError(
            "; ".join(_explain(error) for error in exc.errors(include_url=False)),
            "correct or unset the variable",
        ) from None


def _explain(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:  # a rule over several variables names them itself
        return message
    variable = str(error["loc"][0])
    if variable == _SASL_PASSWORD:
        return f"{variable}: expected a text"
    if variable == _ALERT_WEBHOOK:
        return f"{variable}: {message}"
    message = message.replace("Input should be", "expected")
    return f"{variable}: {message}, found {error['input']!r}"
