"""Maven coordinates -> jars.lock; run only to move to other versions.

    python -m infra.cluster.resolve_jars

Needs Maven (`mvn`) and a network. Users need neither: they download exactly what
the lock lists. Maven does it because its mediation of versions is the one that the
poms were written for; other resolvers mix versions of jackson and the broker dies.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.cluster.jars import LOCK_FILE, Jar, format_lock

KAFKA_VERSION = "4.4.0"
ZOOKEEPER_VERSION = "3.9.5"

# (group, artifact, version, what is not needed of what it brings)
_ROOTS: list[tuple[str, str, str, list[str]]] = [
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, []),
    # Kafka's own command line tools; Connect would double the download.
    (
        "org.apache.kafka",
        "kafka-tools",
        KAFKA_VERSION,
        [
            "org.apache.kafka:connect-runtime",
            "org.apache.kafka:connect-api",
            "org.apache.kafka:connect-json",
        ],
    ),
    # The native TLS and epoll parts are per platform, and unused on loopback.
    (
        "org.apache.zookeeper",
        "zookeeper",
        ZOOKEEPER_VERSION,
        [
            "io.netty:netty-tcnative-boringssl-static",
            "io.netty:netty-transport-native-epoll",
        ],
    ),
    # ZooKeeper loads it at run time but does not declare it.
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1", []),
    # So that both write logs: plain lines on stderr, which we send to a file.
    ("org.slf4j", "slf4j-simple", "1.7.36", []),
]


def _exclusion(coordinate: str) -> str:
    group, artifact = coordinate.split(":")
    return (
        f"<exclusion><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId></exclusion>"
    )


def make_pom() -> str:
    """Returns a pom whose runtime classpath is the cluster's."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>"
        f"<exclusions>{''.join(map(_exclusion, unwanted))}</exclusions></dependency>"
        for group, artifact, version, unwanted in _ROOTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>rollstream</groupId>"
        "<artifactId>cluster-jars</artifactId><version>1</version>"
        "<packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def resolve(work_dir: Path) -> list[Jar]:
    """Lets Maven resolve and fetch the tree into `work_dir`; returns its jars."""
    (work_dir / "pom.xml").write_text(make_pom())
    subprocess.run(
        [
            "mvn",
            "--batch-mode",
            "--quiet",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-Dmdep.useRepositoryLayout=true",
            f"-DoutputDirectory={work_dir / 'jars'}",
        ],
        cwd=work_dir,
        check=True,
    )
    return sorted(map(_to_jar, (work_dir / "jars").rglob("*.jar")), key=str)


def _to_jar(path: Path) -> Jar:
    # repository layout: <group as folders>/<artifact>/<version>/<artifact>-<v>.jar
    root = next(parent for parent in path.parents if parent.name == "jars")
    *group, artifact, version = path.parent.relative_to(root).parts
    if path.name != f"{artifact}-{version}.jar":
        raise SystemExit(f"{path.name}: jars with a classifier are not supported")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Jar(".".join(group), artifact, version, digest)


def main() -> None:
    """Rewrites jars.lock."""
    with tempfile.TemporaryDirectory() as folder:
        jars = resolve(Path(folder))
    LOCK_FILE.write_text(format_lock(jars))
    sys.stdout.write(f"{len(jars)} jars written to {LOCK_FILE}\n")


if __name__ == "__main__":
    main()
