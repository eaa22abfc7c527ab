"""What an experiment IS: the spec that people write and the control topic carries.

Keys are camelCase, as in Kubernetes; times carry their unit in the name.
"""

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from schemas.topics import check_name

ENV_ID = r"^([A-Za-z0-9_.\-]+/)?[A-Za-z0-9_.\-]+-v\d+$"
BUILT_IN_ALGORITHMS = ("dqn",)
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class SpecError(ValueError):
    """A spec that is refused; one line a problem: path, expected, found."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _size(value: Any) -> Any:
    """``20GB`` to bytes."""
    if not isinstance(value, str):
        return value
    for unit, factor in sorted(_UNITS.items(), key=lambda item: -len(item[0])):
        number = value.removesuffix(unit).strip()
        if value.endswith(unit) and number.replace(".", "", 1).isdigit():
            return int(float(number) * factor)
    raise ValueError(f"expected a size such as 20GB, found {value!r}")


Size = Annotated[int, BeforeValidator(_size)]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
    )


JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]


class Wrapper(_Part):
    """A wrapper by its name in Gymnasium's or the machine's list, with arguments."""

    name: str
    kwargs: dict[str, JsonValue] = {}


class EnvSpec(_Part):
    """Which environment, and how many copies run as one.

    ``vectorization`` auto: the environment's own vector entry point when it has one,
    else sync. ``step_timeout_s``: a step that takes longer counts as hung.
    """

    id: str = Field(pattern=ENV_ID)
    kwargs: dict[str, JsonValue] = {}
    wrappers: tuple[Wrapper, ...] = ()
    frame_stack: int = Field(1, ge=1, le=16)
    vectorization: Literal["auto", "sync", "async", "vector_entry_point"] = "auto"
    step_timeout_s: float = Field(60.0, gt=0)

    @field_validator("wrappers", mode="before")
    @classmethod
    def _list_to_tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _vector_takes_no_wrappers(self) -> "EnvSpec":
        if self.vectorization == "vector_entry_point" and self.wrappers:
            raise ValueError(
                "expected no wrappers with vector_entry_point, found "
                f"{len(self.wrappers)}: choose sync or async"
            )
        return self


class ExplorationSpec(_Part):
    """Ape-X: env i of N acts at random with epsilon^(1 + alpha i / (N - 1))."""

    kind: Literal["epsilonLadder"] = "epsilonLadder"
    epsilon: float = Field(0.4, ge=0, le=1)
    alpha: float = Field(7.0, ge=0)


class WorkersSpec(_Part):
    """Env workers: ``replicas`` processes of B environments, T steps a record.

    ``max_env_steps_per_s``: of each worker; 0: as fast as it goes.
    """

    replicas: int = Field(1, ge=0, le=10_000)
    envs_per_worker: int = Field(16, ge=1, le=65_536)
    unroll_length: int = Field(32, ge=1, le=10_000)
    max_env_steps_per_s: float = Field(0.0, ge=0)
    exploration: ExplorationSpec = ExplorationSpec()


class ProcessorSpec(_Part):
    """Stream processors: what returns they compute."""

    replicas: int = Field(1, ge=1, le=10_000)
    n_step: int = Field(3, ge=1, le=1_000)
    gamma: float = Field(0.99, ge=0, le=1)
    reward_scale: float = Field(1.0, gt=0)
    priority_epsilon: float = Field(1e-6, gt=0)


class NetworkSpec(_Part):
    """An MLP of ``hidden`` layers on observations times ``observation_scale``."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = (128, 128)
    activation: Literal["relu", "tanh"] = "relu"
    dueling: bool = False
    observation_scale: tuple[float, ...] = ()

    @field_validator("hidden", "observation_scale", mode="before")
    @classmethod
    def _list_to_tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


class ReplaySpec(_Part):
    """The replay buffer, in transitions, and its priorities."""

    capacity: int = Field(65_536, ge=1, le=100_000_000)
    min_size: int = Field(2_000, ge=1)
    alpha: float = Field(0.6, ge=0, le=1)
    beta: float = Field(0.4, ge=0, le=1)
    weights_normalised_by: Literal["buffer", "batch"] = "buffer"
    priority_epsilon: float = Field(1e-3, gt=0)


class LearnerSpec(_Part):
    """The learner: algorithm, optimiser, how often things happen.

    ``algorithm``: one of BUILT_IN_ALGORITHMS, or one that a module of the machine's
    settings (ROLLSTREAM_LEARNER_MODULES) adds.
    ``on_expired``: what to do when the log no longer holds what comes next.
    """

    replicas: Literal[1] = 1
    algorithm: str = Field("dqn", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    network: NetworkSpec = NetworkSpec()
    replay: ReplaySpec = ReplaySpec()
    samples_per_insert: float = Field(1.0, gt=0)
    batch_size: int = Field(128, ge=1, le=65_536)
    learning_rate: float = Field(1e-3, gt=0)
    adam_epsilon: float = Field(1e-5, gt=0)
    max_grad_norm: float = Field(10.0, gt=0)
    double: bool = True
    target_update_period: int = Field(50, ge=1)
    publish_every_updates: int = Field(16, ge=1)
    publish_interval_ms: int = Field(200, ge=0)
    checkpoint_interval_s: float = Field(10.0, gt=0)
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    on_expired: Literal["earliest", "fail"] = "earliest"


class EvaluatorSpec(_Part):
    """Greedy episodes of one policy version at a time."""

    replicas: Literal[0, 1] = 1
    episodes: int = Field(100, ge=1, le=10_000)
    envs: int = Field(100, ge=1, le=10_000)


class FlowSpec(_Part):
    """Who waits for whom: ``credit`` from the learner, or ``free``.

    ``window``: unrolls in flight for each worker; 0: measured.
    """

    mode: Literal["credit", "free"] = "credit"
    window: int = Field(0, ge=0)


class TopicsSpec(_Part):
    """The experiment's topics; the number of partitions is for life."""

    partitions: int = Field(8, ge=1, le=1_024)
    disk_budget: Size = Field(20 * 10**9, ge=10**8)


class StopSpec(_Part):
    """When it is finished: whichever comes first; nothing: never."""

    env_steps: int | None = Field(None, ge=1)
    mean_return: float | None = None
    wall_s: float | None = Field(None, gt=0)


class Spec(_Part):
    """The experiment's parts."""

    seed: int = Field(1, ge=0, lt=2**63)
    env: EnvSpec
    workers: WorkersSpec = WorkersSpec()
    processor: ProcessorSpec = ProcessorSpec()
    learner: LearnerSpec = LearnerSpec()
    evaluator: EvaluatorSpec = EvaluatorSpec()
    flow: FlowSpec = FlowSpec()
    topics: TopicsSpec = TopicsSpec()
    stop: StopSpec = StopSpec()
    state: Literal["running", "paused", "stopped"] = "running"

    @model_validator(mode="after")
    def _fits_together(self) -> "Spec":
        replay, learner = self.learner.replay, self.learner
        if replay.min_size > replay.capacity:
            raise ValueError(
                "learner.replay.minSize: expected at most capacity "
                f"{replay.capacity}, found {replay.min_size}"
            )
        if learner.batch_size > replay.capacity:
            raise ValueError(
                "learner.batchSize: expected at most learner.replay.capacity "
                f"{replay.capacity}, found {learner.batch_size}"
            )
        return self


class Metadata(_Part):
    """The experiment's name."""

    name: str

    @field_validator("name")
    @classmethod
    def _is_a_topic_part(cls, value: str) -> str:
        return check_name(value)


class Experiment(_Part):
    """An experiment: what ``rollstream run`` and ``launch`` take."""

    api_version: Literal["rollstream/v1"]
    kind: Literal["Experiment"]
    metadata: Metadata
    spec: Spec

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    def to_json(self) -> str:
        """Return the canonical JSON: keys sorted, every default spelt out."""
        return json.dumps(
            self.model_dump(mode="json", by_alias=True),
            sort_keys=True,
            separators=(",", ":"),
        )


def parse_json(text: str) -> Experiment:
    """Return the experiment of a record's JSON; raises SpecError."""
    try:
        return from_values(json.loads(text))
    except json.JSONDecodeError as exc:
        raise SpecError([f"expected JSON, found {exc}"]) from exc


def load_file(path: Path) -> Experiment:
    """Return the experiment in a YAML or JSON file; raises SpecError."""
    return from_values(load_values(path))


def load_values(path: Path) -> dict[str, Any]:
    """Return what a YAML or JSON file holds, unchecked; raises SpecError."""
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except OSError as exc:
        raise SpecError([f"{path}: cannot be read: {exc.strerror}"]) from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise SpecError([f"{path}: expected YAML, found {exc}"]) from exc
    if not isinstance(values, dict):
        raise SpecError([f"{path}: expected a mapping, found {type(values).__name__}"])
    return values


def from_values(values: Any) -> Experiment:
    """Return the experiment that plain values (dicts, lists) describe.

    Raises:
        SpecError: naming each path, what was expected and what was found.
    """
    if not isinstance(values, dict):
        raise SpecError([f"expected a mapping, found {type(values).__name__}"])
    try:
        return Experiment.model_validate(values)
    except ValidationError as exc:
        raise SpecError([_problem(error) for error in exc.errors()]) from exc


def check_algorithm(spec: Spec, has_modules: bool) -> None:
    """Raise SpecError when no module of this machine can know the algorithm."""
    name = spec.learner.algorithm
    if name not in BUILT_IN_ALGORITHMS and not has_modules:
        raise SpecError(
            [
                f"spec.learner.algorithm: expected {' or '.join(BUILT_IN_ALGORITHMS)}, "
                f"found {name!r} (ROLLSTREAM_LEARNER_MODULES may add others)"
            ]
        )


def _problem(error: ErrorDetails) -> str:
    path = ".".join(str(part) for part in error["loc"]) or "(top)"
    found = repr(error["input"])[:80]
    if error["type"] == "extra_forbidden":
        return f"{path}: expected a known key{_nearest(error['loc'])}, found {path}"
    if error["type"] == "missing":
        return f"{path}: expected a value, found none"
    message = error["msg"].removeprefix("Value error, ")
    if message.find("expected") >= 0 and message.find("found") >= 0:
        return f"{path}: {message}"
    return f"{path}: {message[0].lower() + message[1:]}, found {found}"


def _nearest(loc: tuple[int | str, ...]) -> str:
    """Guess the key that was meant."""
    model: Any = Experiment
    for part in loc[:-1]:
        named = {f.alias: f.annotation for f in model.model_fields.values()}
        model = named.get(str(part))
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return ""
    known = [str(f.alias or name) for name, f in model.model_fields.items()]
    close = difflib.get_close_matches(str(loc[-1]), known, 1, 0.5)
    return f" (did you mean {close[0]}?)" if close else f" ({', '.join(known)})"
