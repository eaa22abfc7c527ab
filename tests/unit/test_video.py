"""Frames become a video, whole or not at all; each file is opened and counted."""

import av
import numpy as np
import pytest

from producers.video import VideoFailed, VideoFile


def frame(level, height=17, width=21):
    return np.full((height, width, 3), level, np.uint8)


def opened(path):
    """The video's frames per second, and each picture as an array."""
    with av.open(str(path)) as container:
        (stream,) = container.streams.video
        rate = float(stream.average_rate)
        return rate, [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]


def test_every_frame_is_there_in_order_and_as_it_was(tmp_path):
    path = tmp_path / "a.mp4"
    levels = [*range(0, 250, 10)]
    with VideoFile(path, 12.5) as video:
        for level in levels:
            video.add(frame(level))
    rate, pictures = opened(path)
    assert rate == 12.5 and video.frames == len(pictures) == 25
    assert video.size == (21, 17) and pictures[0].shape == (18, 22, 3)
    # Colours are rounded on the way.
    assert np.abs([p[5, 5, 1] for p in pictures] - np.array(levels, float)).max() <= 4
    assert [each.name for each in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_is_interrupted_leaves_no_file(tmp_path, error):
    with pytest.raises(error), VideoFile(tmp_path / "a.mp4", 30) as video:
        for _ in range(100):
            video.add(frame(9))
        assert list(tmp_path.iterdir()), "it is on its way"
        raise error
    assert list(tmp_path.iterdir()) == []


def test_what_is_interrupted_leaves_the_video_that_was_there(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), VideoFile(path, 30) as video:
        video.add(frame(9))
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before"
    with VideoFile(path, 30) as video:
        video.add(frame(9))
    assert len(opened(path)[1]) == 1


def test_without_a_frame_there_is_no_video(tmp_path):
    with VideoFile(tmp_path / "a.mp4", 30):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_frame_of_another_size_is_refused(tmp_path):
    message = "frames of 21x17, found one of 40x17"
    with (
        pytest.raises(VideoFailed, match=message),
        VideoFile(tmp_path / "a.mp4", 30) as video,
    ):
        video.add(frame(1))
        video.add(frame(1, width=40))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_before_anything_is_played(tmp_path):
    with pytest.raises(VideoFailed, match="found no .*/nowhere"):
        VideoFile(tmp_path / "nowhere" / "a.mp4", 30)


def test_without_an_encoder_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(VideoFailed, match=r"rollstream\[video\]"):
        VideoFile(tmp_path / "a.mp4", 30)
