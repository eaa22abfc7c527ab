"""``rollstream export-policy``: a policy as one ONNX file that acts by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.errors import RollstreamError
from infra.printable import printable
from rollstream.lines import check_experiment
from rollstream.machine import running
from rollstream.options import Json
from rollstream.policy_options import (
    Force,
    Version,
    check_free,
    describe,
    get_policy,
)

EPILOG = (
    "Example: rollstream export-policy cartpole-dqn --onnx cartpole.onnx; then, in "
    "Python: `session = onnxruntime.InferenceSession('cartpole.onnx'); "
    "(q,) = session.run(['q'], {'obs/': observation[None]}); action = q[0].argmax()`"
)
_LIBRARIES = {"onnx", "onnxruntime", "safetensors"}


class MissingLibrary(RollstreamError):
    """What models are written with is not installed."""


def export_policy(
    experiment: Annotated[str, typer.Argument(help="Whose policy.")],
    onnx: Annotated[Path, typer.Option(metavar="FILE", help="Where it is written.")],
    version: Version = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a policy as an ONNX model with its parameters inside.

    Inputs are `obs/NAME` in the environment's own dtype (`obs/` where the observation
    is no Dict or Tuple) and, of a recurrent policy, `state/NAME`: zero at an episode's
    begin, then the outputs `next_state/NAME`. The first size of each is free. Outputs:
    `q`; `logits` and `value`; or `mean` and `log_std`. The model's metadata say what
    they mean: `head`, `greedy_action`, `observation`, `action` with its bounds,
    `states`, `exploration`, `environment`, `experiment`, `run`, `version`.

    Digests are verified, and the file is read again, checked and compared with the
    published graph before it appears. Exit code: 0, 1 on errors, 2 when the words say
    nothing or the file is there already.
    """
    check_experiment(experiment)
    check_free(onnx, force=force)
    settings = running()
    published, kept, found = get_policy(settings, experiment, version)
    try:
        from learner.graph_facts import graph_facts
        from learner.standalone_graph import standalone_graph, write_checked
    except ModuleNotFoundError as exc:
        if exc.name not in _LIBRARIES:
            raise
        raise MissingLibrary(
            f"expected the package {exc.name}, which models are written with, found "
            "none",
            "pip install 'rollstream[learner]'",
        ) from exc
    facts = graph_facts(found.graph, found.version, published.experiment.spec.env)
    data = standalone_graph(found.graph, found.version, facts)
    largest = write_checked(onnx.absolute(), data, found.graph, found.version)
    if as_json:
        print(json.dumps(_figures(onnx, data, facts, kept.parameters, largest)))
        return
    print(f"{experiment} run {printable(published.run_id)}, {describe(kept)}")
    print(
        f"{printable(str(onnx))}: {len(data):,} bytes, head {facts['head']}, "
        f"difference from the published graph {largest:.1g}"
    )


def _figures(
    path: Path,
    data: bytes,
    facts: dict[str, str],
    parameters: int | None,
    largest: float,
) -> dict[str, Any]:
    names = ("experiment", "run", "head", "greedy_action", "tensors_sha256")
    numbers = ("epoch", "version", "train_step")
    return {
        "path": str(path),
        "bytes": len(data),
        "parameters": parameters,
        "largest_difference": largest,
        **{name: facts[name] for name in names},
        **{name: int(facts[name]) for name in numbers},
    }
