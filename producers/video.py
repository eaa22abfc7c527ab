"""Frames -> an mp4 file, which is there when it is whole, and not before."""

from __future__ import annotations

import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from infra.durable import sync_directory
from infra.errors import RollstreamError
from schemas.tensors import Array

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

# As good as the eye can tell; H.264 with this pixel format plays everywhere.
_OPTIONS = {"crf": "18", "preset": "veryfast"}
_PIXELS = "yuv420p"


class VideoFailed(RollstreamError):
    """Frames cannot be made into a video."""


class VideoFile:
    """An mp4 that appears, by one rename, when its block has ended well.

    Attributes:
        path: its name.
        fps: frames a second.
        frames: how many it has.
        size: width and height, which the first frame decides.
    """

    def __init__(self, path: Path, fps: float) -> None:
        """Check that videos can be written here.

        Raises:
            VideoFailed: there is no encoder, or no such folder.
        """
        _import_av()
        if not path.parent.is_dir():
            raise VideoFailed(f"{path}: expected a folder, found no {path.parent}")
        self.path, self.fps = path, fps
        self.frames = 0
        self.size = (0, 0)
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._container: OutputContainer | None = None
        self._stream: VideoStream | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make it appear; after an exception nothing of it stays."""
        try:
            if kind is None and self._container is not None:
                self._finish()
        finally:
            self._close()
            self._part.unlink(missing_ok=True)

    def add(self, frame: Array) -> None:
        """Append a frame, uint8 [H, W, 3].

        Raises:
            VideoFailed: it is not as large as the first one.
        """
        av = _import_av()
        height, width = frame.shape[:2]
        if self._stream is None:
            self._open(width, height)
        if (width, height) != self.size:
            raise VideoFailed(
                f"{self.path}: expected frames of {self.size[0]}x{self.size[1]}, found "
                f"one of {width}x{height}",
                "play without --record",
            )
        assert self._stream is not None and self._container is not None
        # The format halves the colours' resolution: both sizes have to be even.
        even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
        picture = av.VideoFrame.from_ndarray(even, format="rgb24")
        self._container.mux(self._stream.encode(picture))
        self.frames += 1

    def _open(self, width: int, height: int) -> None:
        av = _import_av()
        self._container = av.open(
            str(self._part),
            "w",
            format="mp4",
            # Players can begin before they have all of it.
            container_options={"movflags": "faststart"},
        )
        rate = Fraction(self.fps).limit_denominator(1_000)
        self._stream = self._container.add_stream("libx264", rate=rate)
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = _PIXELS
        self._stream.options = _OPTIONS
        self.size = width, height

    def _finish(self) -> None:
        assert self._stream is not None and self._container is not None
        self._container.mux(self._stream.encode(None))
        self._container.close()
        self._container = None
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self._part, self.path)
        sync_directory(self.path.parent)

    def _close(self) -> None:
        if self._container is not None:
            with suppress(Exception):  # what made it fail has its own reason
                self._container.close()
            self._container = None


def _import_av() -> Any:
    """Import the encoder, which few need."""
    try:
        import av
    except ModuleNotFoundError as exc:
        raise VideoFailed(
            "expected the package av, which writes videos, found none",
            "pip install 'rollstream[video]'",
        ) from exc
    return av
