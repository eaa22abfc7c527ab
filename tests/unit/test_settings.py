from pathlib import Path
from typing import get_args

import pytest
from pydantic import SecretStr, ValidationError

from infra.control.role_environment import role_environment
from infra.errors import SettingsError
from infra.settings import Settings, load_settings


def test_defaults_need_no_variable():
    settings = load_settings()
    assert settings.bootstrap_servers is None
    assert settings.zookeeper is None
    assert settings.data_dir.name == "rollstream"
    assert settings.env_modules == ()


def test_every_variable_is_read(monkeypatch, tmp_path):
    ca_file = tmp_path / "ca.pem"
    ca_file.touch()
    values = {
        "KAFKA_BOOTSTRAP_SERVERS": "a:1, b:2",
        "ROLLSTREAM_ZOOKEEPER": "z:2181/chroot",
        "ROLLSTREAM_DATA_DIR": str(tmp_path / "data"),
        "ROLLSTREAM_CACHE_DIR": "~/cache",
        "ROLLSTREAM_ENV_MODULES": "envs, more.envs",
        "ROLLSTREAM_LEARNER_MODULES": "nets",
        "ROLLSTREAM_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "ROLLSTREAM_KAFKA_SASL_MECHANISM": "PLAIN",
        "ROLLSTREAM_KAFKA_SASL_USERNAME": "me",
        "ROLLSTREAM_KAFKA_SASL_PASSWORD": "geheim",
        "ROLLSTREAM_KAFKA_CA_FILE": str(ca_file),
        "ROLLSTREAM_ALERT_WEBHOOK": "https://chat.example/hooks/geheim",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.bootstrap_servers == "a:1,b:2"
    assert settings.zookeeper == "z:2181/chroot"
    assert settings.data_dir == tmp_path / "data"
    assert settings.cache_dir == Path.home() / "cache"
    assert settings.env_modules == ("envs", "more.envs")
    assert settings.learner_modules == ("nets",)
    assert settings.sasl_password.get_secret_value() == "geheim"
    assert settings.ca_file == ca_file
    webhook = settings.alert_webhook
    assert webhook.get_secret_value() == "https://chat.example/hooks/geheim"


def test_empty_variable_means_not_set(monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "")
    assert load_settings().bootstrap_servers is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("KAFKA_BOOTSTRAP_SERVERS", "localhost", "expected host:port"),
        ("KAFKA_BOOTSTRAP_SERVERS", "a:1,,b:2", "expected host:port"),
        ("KAFKA_BOOTSTRAP_SERVERS", "a:99999", "expected host:port"),
        ("ROLLSTREAM_ZOOKEEPER", "zk", "expected host:port"),
        ("ROLLSTREAM_ENV_MODULES", "a,b-c", "expected module names"),
        ("ROLLSTREAM_KAFKA_SECURITY_PROTOCOL", "TLS", "expected 'PLAINTEXT'"),
        ("ROLLSTREAM_KAFKA_CA_FILE", "/no/such.pem", "expected the path of a PEM"),
        ("ROLLSTREAM_DATA_DIR", "/etc/passwd", "expected a directory"),
    ],
)
def test_error_names_variable_expectation_and_value(monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert f"{name}: {expected}" in str(caught.value)
    assert f"found {value!r}" in str(caught.value)


def test_security_is_given_whole_or_not_at_all(monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "a:1")
    monkeypatch.setenv("ROLLSTREAM_KAFKA_SASL_PASSWORD", "geheim")
    with pytest.raises(SettingsError, match="expected SASL_SSL or SASL_PLAINTEXT"):
        load_settings()
    monkeypatch.setenv("ROLLSTREAM_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(SettingsError, match="expected all three.*found 1") as caught:
        load_settings()
    assert "geheim" not in str(caught.value)


def test_local_broker_has_no_security(monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_KAFKA_SECURITY_PROTOCOL", "SSL")
    with pytest.raises(SettingsError, match="KAFKA_BOOTSTRAP_SERVERS: expected"):
        load_settings()


def test_password_is_never_printed():
    settings = Settings(
        bootstrap_servers="a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password="geheim",
    )
    assert "geheim" not in f"{settings} {settings!r} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    "address",
    [
        "geheim", "ftp://h/geheim", "file:///geheim", "https:///geheim",
        "https://me:geheim@h/", "https://geheim@h/", "http://h:0/geheim",
        "http://h:x/geheim", "http://h/ge heim", "http://h/geheim\nX: y",
        "http://h/geheimé", "http://[geheim/", "javascript:geheim",
    ],
)  # fmt: skip
def test_a_webhook_that_is_none_is_refused_and_not_repeated(monkeypatch, address):
    monkeypatch.setenv("ROLLSTREAM_ALERT_WEBHOOK", address)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "ROLLSTREAM_ALERT_WEBHOOK: expected http" in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:80/x?y=1#z", "https://[::1]:8443", "HTTPS://h.example/a/b"],
)
def test_a_webhook_is_never_printed(address):
    settings = Settings(alert_webhook=address)
    assert settings.alert_webhook.get_secret_value() == address
    for shown in (f"{settings}", repr(settings), settings.model_dump_json()):
        assert address not in shown


def test_roles_are_told_no_secret_but_the_one_that_they_need(monkeypatch):
    """They import modules of others; whatever becomes a setting is withheld as well."""
    secrets = {
        field.validation_alias
        for field in Settings.model_fields.values()
        if SecretStr in get_args(field.annotation)
    }
    assert secrets >= {
        "ROLLSTREAM_ALERT_WEBHOOK",
        "ROLLSTREAM_DASHBOARD_TOKEN",
        "ROLLSTREAM_REGISTRY_TOKEN",
    }
    settings = load_settings().at("a:1", "z:2")
    for name in secrets:
        monkeypatch.setenv(name, "https://h.example/a")
    # Settings are found in either case.
    monkeypatch.setenv("rollstream_registry_token", "b")
    monkeypatch.setenv("ROLLSTREAM_LOG_LEVEL", "debug")
    found = role_environment(settings)
    told = {name for name in found if name.upper() in secrets}
    assert told == {"ROLLSTREAM_KAFKA_SASL_PASSWORD"}
    assert found["ROLLSTREAM_LOG_LEVEL"] == "debug"


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        Settings().bootstrap_servers = "a:1"


def test_at_points_elsewhere():
    settings = Settings().at("a:1", "z:2")
    assert (settings.bootstrap_servers, settings.zookeeper) == ("a:1", "z:2")
