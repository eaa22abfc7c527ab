"""Write the golden files that are missing: `python -m tests.golden.make`.

For every shipped `<Record>.v<N>.avsc`, `<Record>.v<N>.bin` is a record as that version
wrote it, and `<Record>.v<N>.json` has its values, and the hash of the schema. A file
that is there is never written again: it stands for what lies in somebody's log. So run
this when a new version is added, before anything else changes.
"""

import dataclasses
import hashlib
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from schemas import records as r
from schemas.codec import encode
from schemas.deltas import differences
from schemas.registry import shipped
from schemas.tensors import Tensor, pack
from tests.unit.sample_records import SAMPLES

HERE = Path(__file__).parent
NAN, INF = math.nan, math.inf


def stem(name: str, version: int) -> str:
    """Return the name that a version's files have."""
    return f"{name}.v{version}"


def schema_hash(name: str, version: int) -> str:
    """Return the SHA-256 of a shipped file, byte for byte."""
    file = files("schemas").joinpath("avro", f"{stem(name, version)}.avsc")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def as_json(value: Any) -> Any:
    """Return a record as JSON has it; what JSON has not, as text that says what it is.

    Numbers that are no integers are written as hexadecimal digits, which are exact.
    """
    if dataclasses.is_dataclass(value):
        return {
            f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    return f"float {value.hex()}" if isinstance(value, float) else value


def golden_records() -> dict[str, Any]:
    """Return a record of each type with values that are easily got wrong."""
    found = {type(sample).__name__: sample for sample in reversed(SAMPLES)}
    odd = pack(np.array([[NAN, -0.0], [INF, 1e-45], [-INF, 3.5]], "<f4"))
    packed = zstandard.compress(bytes(range(24)))
    changes_of = differences(np.arange(24, dtype="|u1").reshape(4, 6))
    changed = zstandard.compress(changes_of.tobytes())
    changes: dict[str, dict[str, Any]] = {
        "Unroll": {
            "experiment": "é-日本",
            "incarnation": 2**63 - 1,
            "rewards": odd,
            "observations": {
                "": found["Unroll"].observations[""],
                "camera/left": Tensor("|u1", (4, 2, 3), "ZSTD", packed),
                "camera/right": Tensor("|u1", (4, 2, 3), "ZSTD_DELTA", changed),
            },
            "policy": r.NO_POLICY,
            "end_of_stream": True,
        },
        "TransitionBatch": {"gamma": 0.1, "priorities": odd, "reward_scale": -0.0},
        "StreamEnd": {"reason": "", "produced_at_ms": -(2**63)},
        "Credit": {
            "allowed": {"w0": r.WorkerCredit(1, 2), "w10": r.WorkerCredit(3, 4)}
        },
        "MetricsPoint": {"values": {"return": NAN, "loss": INF, "small": 5e-324}},
        "DeadLetter": {"key": b"", "value": bytes(range(256))},
        "PolicyChunk": {"data": b"\x00\xff" * 40},
        "ExperimentSpec": {"spec": '{"a": "\\u0000\U0001f600"}'},
    }
    return {
        name: dataclasses.replace(record, **changes.get(name, {}))
        for name, record in found.items()
    }


def main() -> None:
    """Write what is missing."""
    records = golden_records()
    newest = {schema.name: schema.version for schema in shipped()}
    for schema in shipped():
        path = HERE / stem(schema.name, schema.version)
        binary, values = path.with_suffix(path.suffix + ".bin"), Path(f"{path}.json")
        if binary.exists() or values.exists():
            continue
        if schema.version != newest[schema.name]:
            raise SystemExit(f"{path.name}: can no longer be written as it was")
        record = records[schema.name]
        binary.write_bytes(encode(record))
        facts = {
            "schema_sha256": schema_hash(schema.name, schema.version),
            "record": as_json(record),
        }
        values.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        print(path.name)


if __name__ == "__main__":
    main()
