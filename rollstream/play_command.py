"""``rollstream play``: a policy at work, here, as figures, in a window or as video."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from infra.printable import printable
from infra.settings import load_settings
from rollstream.errors import BadInput
from rollstream.interrupts import leaves_soon
from rollstream.lines import check_experiment
from rollstream.machine import running, with_modules
from rollstream.options import EnvModule, Json
from rollstream.policy_options import (
    Force,
    Version,
    check_free,
    describe,
    get_policy,
)

if TYPE_CHECKING:
    from infra.control.desired import PublishedExperiment
    from infra.policies.shelf import Kept
    from infra.settings import Settings
    from producers.drawing import Mode, Screen
    from producers.playing import Episode
    from producers.video import VideoFile

EPILOG = (
    "Example: rollstream play cartpole-dqn --version best --episodes 3 "
    "--record best.mp4"
)
_STOP_S = 8.0
"""An environment may take so long to be closed when it is interrupted."""

_VIDEO = ".mp4"


def play(
    experiment: Annotated[str, typer.Argument(help="Whose policy.")],
    version: Version = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many.")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Of the episodes, the same for any version; else the spec's.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE.mp4", help="Write what is seen as a video."),
    ] = None,
    force: Force = False,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Run a policy's greedy episodes in the experiment's environment, on this machine.

    The experiment need not run. Episodes have seeds of their own, which --json tells;
    no worker and no evaluation has them. With a display a window shows them; without
    one, with --json or where the environment has no window, they are only counted.
    --record needs none: a frame of each step and each reset, at the environment's
    render_fps, all episodes in one file, which appears when it is whole.

    Exit code: 0, 1 on errors, 2 when the words say nothing or the file is there
    already, 130 after Ctrl-C, with no file.
    """
    check_experiment(experiment)
    if record is not None and record.suffix != _VIDEO:
        raise BadInput(f"--record: expected a name that ends in .mp4, found {record}")
    if record is not None:
        check_free(record, force=force)
    settings = running(with_modules(load_settings(), env_module))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    # What it is doing may be native code, which no exception interrupts.
    with leaves_soon(_STOP_S):
        figures = _play(
            settings, experiment, version, episodes, seed, record, console, as_json
        )
    if as_json:
        print(json.dumps(figures))


def _play(
    settings: Settings,
    name: str,
    version: str | None,
    count: int,
    seed: int | None,
    record: Path | None,
    console: Console,
    as_json: bool,
) -> dict[str, Any]:
    published, kept, found = get_policy(settings, name, version)
    spec = published.experiment.spec
    seed = spec.seed if seed is None else seed
    if not as_json:
        print(
            f"{name} run {printable(published.run_id)}, {describe(kept)}, seed {seed}"
        )
    from producers.playing import playing
    from rollstream.play_display import PlayDisplay

    screen, fps = _screen(settings, published, record, console, as_json=as_json)
    played = []
    with ExitStack() as closing:
        video = closing.enter_context(_video(record, fps))
        display = closing.enter_context(PlayDisplay(console, count))

        def on_row() -> None:
            for frame in screen.take():
                assert video is not None
                video.add(frame)
                display.frame(video.frames)

        episodes = closing.enter_context(
            playing(
                _context(settings, published),
                found.graph,
                found.version,
                screen,
                episodes=count,
                seed=seed,
                on_row=on_row,
            )
        )
        for number, episode in enumerate(episodes, 1):
            played.append(episode)
            display.episode(number)
            if not as_json:
                print(
                    f"episode {number}: return {episode.return_:g}, "
                    f"{episode.length:,} steps",
                    flush=True,
                )
    figures = _figures(published, kept, seed, played, video)
    if not as_json:
        _show(figures)
    return figures


def _screen(
    settings: Settings,
    published: PublishedExperiment,
    record: Path | None,
    console: Console,
    *,
    as_json: bool,
) -> tuple[Screen, float]:
    """Return what shows the environment, and at how many frames a second."""
    from producers.drawing import (
        DEFAULT_FPS,
        CannotDraw,
        Screen,
        SeenRecipe,
        frames_per_second,
        has_display,
    )

    spec = published.experiment.spec.env
    mode: Mode = "human" if has_display() and not as_json else "none"
    if record is not None:
        mode = "rgb_array"
    if mode == "none":
        if not as_json:
            _say(console, "no display: episodes are counted; --record makes a video")
        return Screen(), DEFAULT_FPS
    try:
        fps = frames_per_second(SeenRecipe.on(spec, settings, Screen(mode)))
    except CannotDraw as exc:
        if record is not None:
            raise
        _say(console, f"no window: {exc.problem}")
        return Screen(), DEFAULT_FPS
    return Screen(mode), fps


@contextmanager
def _video(path: Path | None, fps: float) -> Iterator[VideoFile | None]:
    if path is None:
        yield None
        return
    from producers.video import VideoFile

    with VideoFile(path, fps) as video:
        yield video


def _context(settings: Settings, published: PublishedExperiment) -> Any:
    from infra.control.role import RoleContext

    return RoleContext(
        settings,
        published.experiment,
        published.run_id,
        "evaluator",
        0,
        published.offset,
    )


def _figures(
    published: PublishedExperiment,
    kept: Kept,
    seed: int,
    played: list[Episode],
    video: VideoFile | None,
) -> dict[str, Any]:
    returns = [episode.return_ for episode in played]
    shown = video and {
        "path": str(video.path),
        "frames": video.frames,
        "fps": video.fps,
        "width": video.size[0],
        "height": video.size[1],
    }
    return {
        "experiment": published.experiment.name,
        "run_id": published.run_id,
        "epoch": kept.version.epoch,
        "version": kept.version.version,
        "train_step": kept.version.train_step,
        "seed": seed,
        "episodes": [
            {"return": each.return_, "length": each.length, "seed": each.seed}
            for each in played
        ],
        "mean_return": sum(returns) / len(returns),
        "video": shown,
    }


def _show(figures: dict[str, Any]) -> None:
    returns = [each["return"] for each in figures["episodes"]]
    if len(returns) > 1:
        print(
            f"mean {figures['mean_return']:g}, lowest {min(returns):g}, highest "
            f"{max(returns):g} of {len(returns):,} episodes"
        )
    if (video := figures["video"]) is not None:
        seconds = video["frames"] / video["fps"]
        print(
            f"{printable(video['path'])}: {video['frames']:,} frames of "
            f"{video['width']}x{video['height']}, {seconds:.1f} s at {video['fps']:g} "
            "frames/s"
        )


def _say(console: Console, line: str) -> None:
    console.print(printable(line), style="dim", markup=False)
