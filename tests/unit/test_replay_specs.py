"""What is named on a command line -> specs of experiments without workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from archive.pacing import Pace
from archive.past_source import NoSource, find_folder, name_of_experiment
from archive.selection import Selection
from infra.settings import Settings
from rollstream.replaying import Wish, without_workers
from rollstream.run_from import check_past, from_past
from schemas.experiment import SpecError
from tests.unit.pasts import small


def archive(folder: Path, *runs: str) -> None:
    for run in runs:
        (folder / run).mkdir(parents=True)
        (folder / run / "manifest.jsonl").touch()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def test_a_name_is_an_experiment_and_a_path_a_folder(settings, tmp_path, monkeypatch):
    archive(settings.archives / "pole", "20260101T000000-a", "20270101T000000-b")
    archive(tmp_path / "kept", "")
    monkeypatch.chdir(tmp_path)
    newest = settings.archives / "pole" / "20270101T000000-b"
    assert find_folder(settings, "pole") is None, "an experiment, before all"
    assert name_of_experiment(settings, "pole") == "pole"
    assert find_folder(settings, "pole/") == newest, "the newest run's"
    assert find_folder(settings, "pole/20260101T000000-a").name == "20260101T000000-a"
    assert find_folder(settings, "./kept") == Path("kept")
    assert find_folder(settings, str(tmp_path / "kept")) == tmp_path / "kept"
    assert find_folder(settings, "not/there") is None
    with pytest.raises(NoSource, match="found 'not/there'"):
        name_of_experiment(settings, "not/there")


def test_a_file_that_is_run_from_a_past_loses_its_workers_and_keeps_its_wishes(
    settings, tmp_path
):
    archive(settings.archives / "pole", "r1")
    archive(tmp_path / "elsewhere", "r2")
    wished = small(
        "new", past={"since": "step:9"}, workers={"replicas": 2, "min": 1, "max": 4}
    )
    there, found = from_past(settings, wished, "old")
    assert there == settings
    assert (found.spec.past.experiment, found.spec.past.archive) == ("old", None)
    assert found.spec.past.since == "step:9" and found.spec.workers.most_replicas == 0
    there, found = from_past(settings, found, "pole/r1")
    assert there == settings
    assert (found.spec.past.experiment, found.spec.past.archive) == (None, "pole/r1")
    there, found = from_past(settings, wished, str(tmp_path / "elsewhere" / "r2"))
    assert there.archives == tmp_path / "elsewhere" and found.spec.past.archive == "r2"


def test_a_target_has_the_spec_of_its_source_but_for_who_makes_experience(settings):
    old = small(
        "old",
        workers={"replicas": 3, "min": 1, "max": 4, "envsPerWorker": 7},
        learner={"sources": [{"weight": 1}]},
        archive=True,
        state="stopped",
    )
    wish = Wish("new", Selection(), Pace(), ["spec.processor.nStep=5"])
    new = without_workers(old, wish)
    assert (new.name, new.spec.processor.n_step) == ("new", 5)
    spec = new.spec
    assert spec.workers.most_replicas == 0 and spec.workers.envs_per_worker == 7
    assert (spec.archive, spec.state, spec.learner.sources) == (False, "running", ())
    wish = Wish("new", Selection(), Pace(), ["spec.workers.replicas=2"])
    with pytest.raises(SpecError, match="expected 0, found 2"):
        without_workers(old, wish)


@pytest.mark.parametrize(
    ("past", "says"),
    [
        ({"since": "2026-01-01T00:00:00"}, "spec.past: since: .* with its zone"),
        ({"episodes": "good"}, "spec.past: episodes"),
        ({"rate": "0"}, "spec.past: rate"),
    ],
)
def test_what_a_spec_says_of_a_past_is_checked_before_it_is_published(past, says):
    check_past(small("new", past=past))  # of no past nothing is wanted
    with pytest.raises(SpecError, match=says):
        check_past(small("new", past={"experiment": "old", **past}))
