import json
import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from infra.cluster.local import LocalCluster
from infra.control.experiments import new_run_id, publish_experiment
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.schema_registry import SchemaRegistry
from infra.settings import Settings
from rollstream.cli import main
from rollstream.peek_command import BadOffset, parse_time_ms, peek
from rollstream.topics_command import topics
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import StreamEnd
from schemas.registry import newest
from schemas.topics import TRAJECTORIES, topic_name
from tests.unit.sample_records import unroll
from tests.unit.test_experiment import values

pytestmark = pytest.mark.kafka


@pytest.fixture
def sender(settings):
    return Sender(make_producer(settings, client_id="test-commands"))


def rollstream(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "rollstream.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, **environment},
    )


def test_peek_decodes_what_is_ours_and_shows_what_is_not(
    settings, sender, make_topic, capsys
):
    topic = make_topic(partitions=2)
    for sequence in range(3):
        sender.send_and_wait(topic, encode(unroll(sequence=sequence)), "w3", 1)
    sender.send_and_wait(topic, b"garbage", "w3", 0)
    peek(settings, topic, "0", 2, partition=1, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["sequence"] for record in found] == [0, 1]
    assert found[0]["observations"][""] == ("<f4[4, 2, 4] RAW [1, 1, 1, 1, 1, 1, ...]")
    peek(settings, topic, "-1", 1, partition=None, as_json=True)
    last = json.loads(capsys.readouterr().out)
    assert "expected the first byte 0" in last["error"]
    assert last["first_bytes"].startswith("67 61 72")
    peek(settings, topic, "-2", 2, partition=1, as_json=False)
    text = capsys.readouterr().out
    assert "offset 1  Unroll" in text and "sequence: 2" in text


def test_peek_reads_what_a_newer_writer_wrote_and_the_schemas_themselves(
    settings, sender, make_topic, capsys
):
    newer = json.loads(newest("StreamEnd").text)
    newer["fields"].append({"name": "more", "type": "int", "default": 0})
    ensure_shared_topics(settings)
    old = encode(StreamEnd("exp", "run1", "w0", 3, "why", 5))
    topic = make_topic()
    known = SchemaRegistry(settings).register(topic, json.dumps(newer))
    value = b"\0" + known.id.to_bytes(4, "big") + old[5:] + b"\x0e"
    sender.send_and_wait(topic, value, "w0")
    peek(settings, topic, "0", 1, partition=None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["record"], found["incarnation"]) == ("StreamEnd", 3)
    peek(settings, "rollstream.schemas", "-1", 1, partition=None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["subject"], found["version"]) == (topic, 1)


def test_peek_finds_records_by_time(settings, sender, make_topic, capsys):
    topic = make_topic()
    sender.send_and_wait(topic, encode(unroll(sequence=0)), "w3")
    peek(settings, topic, "@2020-01-01T00:00:00Z", 5, partition=None, as_json=True)
    assert json.loads(capsys.readouterr().out)["sequence"] == 0
    peek(settings, topic, "@2100-01-01T00:00:00Z", 5, partition=None, as_json=False)
    assert "no record there" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00", "yesterday"])
def test_a_time_needs_a_zone(text):
    with pytest.raises(BadOffset, match="time: expected"):
        parse_time_ms(text)


def test_topics_shows_the_map_beside_the_broker(settings, sender, capsys):
    name = f"shown-{uuid.uuid4().hex[:8]}"
    experiment = from_values(values(metadata__name=name))
    ensure_experiment_topics(settings, experiment)
    publish_experiment(sender, experiment, new_run_id(), -1)
    sender.send_and_wait(topic_name(TRAJECTORIES, name), encode(unroll()), "w3", 3)
    topics(settings, name, to_print=False, as_json=True)
    rows = {row["topic"]: row for row in json.loads(capsys.readouterr().out)}
    row = rows[f"rollstream.{name}.trajectories"]
    assert row["found"]["partitions"] == row["wanted"]["partitions"] == 8
    assert row["found"]["config"]["message.timestamp.type"] == "LogAppendTime"
    assert sum(row["found"]["end_offsets"]) == 1
    topics(settings, name, to_print=True, as_json=False)
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == len(rows)
    assert all("--create --if-not-exists --topic rollstream." in c for c in commands)


def test_an_unknown_experiment_is_named(settings):
    done = rollstream("topics", "nobody-made-this")
    assert done.returncode == 1
    assert "found 'nobody-made-this'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refused_spec_exits_with_2_and_publishes_nothing(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("apiVersion: rollstream/v1\nkind: Experiment\nspec: {sed: 1}\n")
    done = rollstream("run", str(path), "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "spec.sed: expected a known key (did you mean seed?)" in done.stderr


@pytest.mark.parametrize(
    "command",
    [[], ["run"], ["validate"], ["up"], ["down"], ["doctor"], ["topics"], ["peek"],
     ["logs"], ["events"], ["launch"], ["ps"], ["get"], ["diff"], ["pause"],
     ["resume"], ["scale"], ["stop"], ["delete"], ["bench", "pipeline"],
     ["policies"], ["play"], ["export-policy"]],
)  # fmt: skip
def test_every_command_has_help_with_an_example(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["rollstream", *command, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (None, 0)
    assert "Example:" in capsys.readouterr().out


def test_up_leaves_a_cluster_that_down_stops(tmp_path, bare):
    environment = {"ROLLSTREAM_DATA_DIR": str(tmp_path)}
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "ROLLSTREAM_ZOOKEEPER"):
        environment[name] = ""
    started = rollstream("up", "--json", **environment)
    try:
        assert started.returncode == 0, started.stderr
        brokers = json.loads(started.stdout)["KAFKA_BOOTSTRAP_SERVERS"]
        checks = json.loads(rollstream("doctor", "--json", **environment).stdout)
        assert any(brokers in check["found"] for check in checks)
    finally:
        assert rollstream("down", **environment).returncode == 0
    found = rollstream("topics", **environment)
    assert found.returncode == 1
    assert "expected a running cluster, found none" in found.stderr


@pytest.fixture
def bare(tmp_path):
    """Variables of a machine of the test's own; what is left on it is ended."""
    environment = {**os.environ, "ROLLSTREAM_DATA_DIR": str(tmp_path)}
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "ROLLSTREAM_ZOOKEEPER"):
        environment.pop(name, None)
    yield environment
    nowhere = {"bootstrap_servers": None, "zookeeper": None}
    LocalCluster(Settings(data_dir=tmp_path, **nowhere)).stop()


def test_ctrl_c_while_the_cluster_starts_leaves_nothing(tmp_path, bare):
    process = subprocess.Popen(
        [sys.executable, "-m", "rollstream.cli", "up"],
        env=bare,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: any(tmp_path.glob("cluster/*.json")))
        process.send_signal(signal.SIGINT)
        # Else it ends with 0, with the cluster up.
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert not processes_of(tmp_path)


_INTERRUPTED = """
import os, signal, subprocess, sys, threading
program, moment = sys.argv[1:]
real, begun = subprocess.Popen, []
class Popen(real):
    def __init__(self, args, *others, **more):
        super().__init__(args, *others, **more)
        if program not in args:
            return
        begun.append(self)
        if moment == "starts":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            os.kill(self.pid, signal.SIGSTOP)  # it cannot be over before
            interrupt = os.getpid(), signal.SIGINT
            threading.Timer(0.3, os.kill, interrupt).start()
subprocess.Popen = Popen
from rollstream.__main__ import main
sys.argv = ["rollstream", "up"]
try:
    main()
finally:
    print(len(begun), *(child.returncode for child in begun), flush=True)
"""


@pytest.mark.parametrize("moment", ["starts", "runs"])
@pytest.mark.parametrize(
    "program",
    [
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        "kafka.tools.StorageTool",
        "kafka.Kafka",
    ],
)
def test_ctrl_c_while_a_program_starts_or_runs_leaves_nothing(
    tmp_path, bare, program, moment
):
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, program, moment],
        env=bare,
        capture_output=True,
        timeout=200,
    )
    assert done.returncode == 130, done.stderr
    assert not processes_of(tmp_path)
    # Told to end is not enough: it has gone, and was waited for.
    count, *codes = done.stdout.split()
    assert count == b"1" and codes != [b"None"], done.stderr


def processes_of(directory):
    """What runs for it: of who has only just started there is no command line yet."""
    found = psutil.process_iter(["cmdline", "cwd"])
    told = [[each.info["cwd"] or "", *(each.info["cmdline"] or [])] for each in found]
    return [words for words in told if str(directory) in " ".join(words)]


def wait_until(condition, timeout_s=120.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within the time"
        time.sleep(0.02)
