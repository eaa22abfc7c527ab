"""``rollstream import``: a dataset of another library into a new experiment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from infra.errors import RollstreamError
from rollstream.errors import BadInput
from rollstream.lines import check_experiment
from rollstream.options import Json, Overrides

if TYPE_CHECKING:
    from archive.minari_dataset import MinariDataset
    from infra.settings import Settings
    from rollstream.replay_display import ReplayDisplay
    from rollstream.replaying import Replayed, Wish
    from schemas.experiment import Experiment
    from schemas.records import SpaceField

EPILOG = (
    "Example: rollstream import minari:D4RL/door/human-v2 --into door-human "
    "--set spec.processor.nStep=5"
)


class NoEnvironment(RollstreamError):
    """Nobody says which environment a dataset is of."""


class OtherSpaces(RollstreamError):
    """The environment that a dataset is said to be of has other spaces than it."""


def import_dataset(
    dataset: Annotated[
        str, typer.Argument(help="minari:ID, one that this machine has.")
    ],
    into: Annotated[
        str, typer.Option(help="The experiment, made where it is not there.")
    ],
    rate: Annotated[str, typer.Option(help="max, or N/s: steps a second.")] = "max",
    resume: Annotated[
        bool, typer.Option("--resume", help="Only if it was begun before.")
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Bring a dataset of Minari into an experiment, exactly once.

    Its episodes become what workers would have written; processors and learner do with
    them what the experiment's spec says: the dataset's environment, no workers, and
    what --set says. Interrupted or killed at any moment, the same command goes on; run
    again when it is done, it adds nothing. Exit code: 0 all is in, 1 an error, 2
    refused, 130 after Ctrl-C.
    """
    # Here, not above: other commands need none of it.
    from archive.minari_ids import DATASET_ID, DATASET_PREFIX
    from archive.pacing import BadRate, Pace
    from archive.selection import Selection
    from infra.settings import load_settings
    from rollstream.interrupts import leaves_soon
    from rollstream.machine import running, with_modules
    from rollstream.replay_display import ReplayDisplay
    from rollstream.replaying import Replayed, Wish

    dataset_id = dataset.removeprefix(DATASET_PREFIX)
    if dataset == dataset_id or not DATASET_ID.fullmatch(dataset_id):
        raise BadInput(f"dataset: expected minari:NAME/x-v0, found {dataset[:80]!r}")
    check_experiment(into)
    try:
        pace = Pace.parse(rate)
    except BadRate as exc:
        raise BadInput(exc.problem, exc.mend) from exc
    settings = running(with_modules(load_settings(), None))
    console = Console(stderr=as_json, highlight=False)
    done = Replayed(dataset, into)
    try:
        with leaves_soon(8.0), ReplayDisplay(console) as display:
            wish = Wish(into, Selection(), pace, overrides or (), resume)
            _bring_in(settings, dataset_id, wish, display, done)
    except (KeyboardInterrupt, SystemExit):
        console.print("interrupted; the same command goes on", style="dim")
        raise
    finally:
        if as_json:
            print(json.dumps(done.figures()))
    if not as_json:
        console.print(done.in_words(), markup=False, soft_wrap=True)


def _bring_in(
    settings: Settings,
    dataset_id: str,
    wish: Wish,
    display: ReplayDisplay,
    done: Replayed,
) -> None:
    from archive.past_source import MissingLibrary
    from producers.spaces import describe
    from rollstream.replaying import bring_in

    try:
        from archive.minari_dataset import MinariDataset
        from archive.minari_ids import datasets_root
        from archive.minari_import import MinariSource
    except ModuleNotFoundError as exc:
        raise MissingLibrary(
            f"expected what datasets are read with, found no {exc.name}",
            "pip install 'rollstream[archive]'",
        ) from exc
    dataset = MinariDataset(
        datasets_root(),
        dataset_id,
        describe,
        lambda part, of: display.tell("reading the dataset", part, of),
    )
    experiment = experiment_of(dataset, wish.overrides)
    _check_spaces(settings, dataset, experiment, display)
    source = MinariSource(dataset, experiment)
    done.source = source.info.identity
    bring_in(settings, source, wish, display, done)


def experiment_of(dataset: MinariDataset, overrides: Sequence[str]) -> Experiment:
    """Return the experiment that a dataset stands for.

    Args:
        dataset: says what its environment is, or does not.
        overrides: ``path=value`` of the new experiment; those of the environment count.

    Raises:
        NoEnvironment: neither says which environment it is.
        SpecError: what is said cannot be an experiment's.
    """
    from archive.minari_import import SOURCE
    from rollstream.overrides import apply_overrides
    from schemas.experiment import from_values

    values: dict[str, Any] = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": SOURCE},
        "spec": {"env": dataset.env or {}, "workers": {"replicas": 0}},
    }
    of_env = [each for each in overrides if each.startswith("spec.env.")]
    values = apply_overrides(values, of_env)
    if "id" not in values["spec"]["env"]:
        raise NoEnvironment(
            f"dataset {dataset.dataset_id}: expected to be told its environment, found "
            "nothing",
            "say it with --set spec.env.id=ID",
        )
    return from_values(values)


def _check_spaces(
    settings: Settings,
    dataset: MinariDataset,
    experiment: Experiment,
    display: ReplayDisplay,
) -> None:
    """Refuse an environment in which nobody could evaluate what is learnt."""
    from rollstream.machine import try_here
    from schemas.experiment import SpecError

    env = experiment.spec.env
    try:
        found = try_here(env, settings)
    except (SpecError, RollstreamError) as exc:
        display.say(
            f"{env.id} cannot be made here, so it is not known whether it has the "
            f"dataset's spaces: {exc}",
            style="yellow",
        )
        return
    for what, expected, there in (
        ("observation", dataset.observation, found.observation),
        ("action", dataset.action, found.action),
    ):
        if list(map(_form, expected)) != list(map(_form, there)):
            raise OtherSpaces(
                f"dataset {dataset.dataset_id}: expected the {what} space of {env.id}, "
                f"{_shown(there)}, found {_shown(expected)}",
                "name its environment, wrappers and arguments with --set spec.env....",
            )


def _form(field: SpaceField) -> tuple[Any, ...]:
    # Not its bounds: no network needs them.
    return field.name, field.kind, field.dtype, field.shape, field.n, field.start


def _shown(fields: tuple[SpaceField, ...]) -> str:
    return ", ".join(
        f"{f.name} {f.kind} {f.dtype}{list(f.shape)}".strip() for f in fields
    )
