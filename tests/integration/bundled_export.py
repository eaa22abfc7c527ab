"""The graph of the rig's actor, exported once and for all: that takes a minute.

Exporters import a compiler; on a busy machine each process would need a minute for it.
What a learner does with a graph is the same, and it still compares this one with its
module, by onnxruntime: a file that is of another module ends the learner.
"""

from pathlib import Path

from learner.background_export import BackgroundExport

FILE = Path(__file__).with_name("rig_actor.onnx")
"""Of ``learner_rig.experiment()``; ``python -m tests.integration.bundled_export``."""

SHAPES = {
    "encoder.scale": (4,),
    "body.0.weight": (16, 4),
    "body.0.bias": (16,),
    "head.weight": (2, 16),
    "head.bias": (2,),
}

PRELUDE = """
from tests.integration.bundled_export import use_in_process
use_in_process()
"""
LEARNER = f"""
from infra.control.role import role_main
from learner.train import run
{PRELUDE}
role_main("learner", run)
"""
"""A learner's process whose actor is the rig's."""


def use_in_process():
    """Let the learner of a process take the bundled graph once it wants one.

    Not before: the exporter's module is imported no sooner than in any learner.
    """
    start = BackgroundExport.start

    def with_bundle(self):
        from learner import actor_graph

        actor_graph._export = bundled_or(actor_graph._export)
        start(self)

    BackgroundExport.start = with_bundle


def bundled_or(export):
    """Return what exports the rig's actor at once, and others as ``export`` does."""

    def find(actor, inputs, own, outputs):
        if shapes(own) == SHAPES:
            return FILE.read_bytes()
        return export(actor, inputs, own, outputs)

    return find


def shapes(own):
    return {name: tuple(tensor.shape) for name, tensor in own.items()}


def _write():
    from learner import actor_graph
    from learner.algorithms import build
    from tests.integration.learner_rig import ENV, experiment

    actor = build(ENV, experiment().spec).actor()
    FILE.write_bytes(actor_graph.export_actor(actor).onnx)


if __name__ == "__main__":
    _write()
