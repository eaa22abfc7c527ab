"""`rollstream registry` as a process, and clients that know nothing of rollstream."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient

from infra.settings import Settings

JSON = "application/vnd.schemaregistry.v1+json"
_END_S = 60.0


def start_registry(
    settings: Settings, *arguments: str, **environment: str
) -> subprocess.Popen[str]:
    """Start the command on the session's cluster."""
    assert settings.bootstrap_servers and settings.zookeeper
    return subprocess.Popen(
        [sys.executable, "-m", "rollstream.cli", "registry", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "ROLLSTREAM_ZOOKEEPER": settings.zookeeper,
            **environment,
        },
    )


def refused_registry(
    settings: Settings, *arguments: str, **environment: str
) -> tuple[int, str, str]:
    """Wait for the end of a command that cannot serve: code, output, errors."""
    child = start_registry(settings, *arguments, **environment)
    try:
        out, errors = child.communicate(timeout=2 * _END_S)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    return child.returncode, out, errors


@contextmanager
def registry(settings: Settings, *arguments: str, **environment: str) -> Iterator[str]:
    """Serve on a free port; yield the URL; Ctrl-C has to end it with 130."""
    child = start_registry(settings, "--port", "0", *arguments, **environment)
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        found = re.search(r"http://\S+:(\d+)", line)
        if found is None:
            child.kill()
            raise AssertionError(child.communicate(timeout=_END_S))
        yield f"http://127.0.0.1:{found[1]}"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=_END_S)
        assert child.returncode == 130, errors
        assert "Traceback" not in errors, errors
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()


@contextmanager
def client(url: str, **config: str) -> Iterator[SchemaRegistryClient]:
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    with SchemaRegistryClient({"url": url, **dotted}) as found:
        yield found


def ask(
    url: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Send a request; return the status and the JSON of the answer."""
    data = (
        body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    )
    names = {key.replace("_", "-"): value for key, value in headers.items()}
    if data is not None:
        names = {"Content-Type": JSON, **names}
    request = urllib.request.Request(url, data, names, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            assert answer.headers["Content-Type"].startswith("application/")
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            assert exc.headers["Content-Type"] == JSON
            found = json.loads(exc.read())
            assert found.keys() == {"error_code", "message"}
            return exc.code, found


def unique(prefix: str = "Thing") -> str:
    """A name that no other test has, of a record as of a subject."""
    return f"{prefix}{uuid.uuid4().hex[:10]}"


def thing(name: str, *more: dict[str, Any]) -> str:
    """A schema of a record with a field `a`, and more."""
    fields = [{"name": "a", "type": "long"}, *more]
    return json.dumps({"type": "record", "name": name, "fields": fields})


def added(name: str, kind: Any = "int", default: Any = 0) -> dict[str, Any]:
    return {"name": name, "type": kind, "default": default}
