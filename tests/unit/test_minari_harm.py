"""Datasets that are damaged, or mean harm."""

from __future__ import annotations

import json
import os

import minari
import pyarrow as pa
import pytest
from minari.data_collector.episode_buffer import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from archive.minari_dataset import MinariDataset
from archive.minari_ids import DatasetError, dataset_folder, datasets_root
from archive.spaces import nest
from infra.errors import RollstreamError
from producers.spaces import describe
from tests.unit.minari_datasets import (
    ID,
    NESTED,
    PLAIN,
    assert_same,
    by_dataset,
    change,
    described,
    episode,
    export,
    source_of,
)
from tests.unit.recorded_worlds import World


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    assert datasets_root() == tmp_path / "datasets"
    return tmp_path / "datasets"


@pytest.mark.parametrize(
    "dataset_id",
    ["../x-v0", "/etc/x-v0", "a/../b-v0", "a//b-v0", "a/.b-v0", "x", "x-v", "",
     "x-v0/", "x-v0\n", "a\\b-v0", "é-v0", "a/" * 9 + "x-v0", "x" * 200 + "-v0"],
)  # fmt: skip
def test_an_id_that_leads_elsewhere_is_refused(root, dataset_id):
    with pytest.raises(DatasetError, match="dataset id: expected NAME/x-v0"):
        dataset_folder(root, dataset_id)


def test_a_dataset_with_links_is_refused(root, tmp_path):
    export(root, [episode(*PLAIN, 3)], described(*PLAIN))
    secret = tmp_path / "secret"
    secret.write_text("x")
    link = root / ID / "data" / "0" / "more.arrow"
    link.symlink_to(secret)
    with pytest.raises(DatasetError, match="expected files and folders only"):
        source_of(root)
    link.unlink()
    (tmp_path / "other").mkdir()
    link.symlink_to(tmp_path / "other", target_is_directory=True)
    with pytest.raises(DatasetError, match="expected files and folders only"):
        source_of(root)
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(DatasetError, match="expected files and folders only"):
        source_of(root)
    (root / "elsewhere").symlink_to(root / "rollstream")
    with pytest.raises(DatasetError, match="is a link"):
        source_of(root, "elsewhere/past-v0")
    with pytest.raises(DatasetError, match="found none. To mend: `minari download"):
        source_of(root, "other-v3")


HARM = json.dumps(
    {
        "id": "Harm-v0", "entry_point": "tests.unit.recorded_worlds:World",
        "kwargs": {"seed": 3}, "additional_wrappers": [],
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        # Minari itself would make, and import, what the env_spec names.
        ({"observation_space": None, "env_spec": HARM}, "expected observation_space"),
        ({"action_space": {"type": "Box"}}, "expected action_space, found none"),
        ({"data_format": "pickle"}, "expected the data_format arrow, hdf5, parquet"),
        ({"observation_space": '{"type": "Evil"}'}, "cannot be read: TypeError"),
        ({"observation_space": "[" * 100_000}, "cannot be read: RecursionError"),
        ({"total_episodes": 10**9}, "cannot be read: FileNotFoundError"),
        ({"total_episodes": "x"}, "cannot be read: TypeError"),
        ({"env_spec": "{"}, None),
        ({"env_spec": HARM}, None),
    ],
)
def test_metadata_that_mean_harm_make_and_import_nothing(
    root, changes, problem, monkeypatch
):
    export(root, [episode(*PLAIN, 3)], described(*PLAIN))
    monkeypatch.setattr(World, "__init__", lambda *_, **__: pytest.fail("made"))
    change(root, **changes)
    if problem is None:
        assert len(by_dataset(source_of(root))) == 1
        return
    with pytest.raises(DatasetError, match=problem):
        source_of(root)


def test_nothing_in_an_arrow_file_is_unpickled(root, tmp_path):
    export(root, [episode(*PLAIN, 3)], described(*PLAIN))
    (file,) = (root / ID / "data" / "0").glob("*.arrow")
    with pa.ipc.open_file(file) as reader:
        table = reader.read_all()
    # protocol 0 of `os.mkdir(mark)`: what old versions of pyarrow would have run.
    mark = tmp_path / "unpickled"
    harm = f"cposix\nmkdir\n(V{mark}\ntR.".encode()
    field = table.schema.field("rewards").with_metadata(
        {
            b"ARROW:extension:name": b"arrow.py_extension_type",
            b"ARROW:extension:metadata": harm,
        }
    )
    at = table.schema.get_field_index("rewards")
    changed = table.cast(table.schema.set(at, field))
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, changed.schema) as w:
        w.write_table(changed)
    import pickle

    pickle.loads(harm)  # the harm is real
    assert mark.is_dir()
    mark.rmdir()
    try:
        by_dataset(source_of(root))
    except DatasetError:
        pass
    assert not mark.exists()


def test_damage_is_told_with_its_place(root):
    episodes = [episode(*PLAIN, 3), episode(*PLAIN, 4, 1)]
    export(root, episodes, described(*PLAIN))
    before = MinariDataset(root, ID, describe).sha256
    (file,) = (root / ID / "data" / "1").glob("*.arrow")
    data = file.read_bytes()
    file.write_bytes(data[:-100])
    assert MinariDataset(root, ID, describe).sha256 != before
    with pytest.raises(DatasetError, match="cannot be read: episode 1: "):
        by_dataset(source_of(root))
    file.write_bytes(data)
    assert MinariDataset(root, ID, describe).sha256 == before
    other = root / ID / "data" / "0" / "metadata.json"
    other.write_text(json.dumps({"id": 0, "total_steps": 2}))
    with pytest.raises(DatasetError, match=r"episode 0: value: expected <f4\[3, 2\]"):
        by_dataset(source_of(root))


def test_an_end_in_the_middle_of_an_episode_is_refused(root):
    odd = episode(*PLAIN, 4)
    odd.terminations[1] = True
    export(root, [odd], described(*PLAIN))
    with pytest.raises(DatasetError, match="expected its end in its last step"):
        by_dataset(source_of(root))


def test_a_space_that_cannot_travel_is_refused(root):
    export(root, [episode(*PLAIN, 4)], described(*PLAIN))
    text = {"type": "Text", "max_length": 3, "min_length": 1, "charset": "ab"}
    change(root, action_space=json.dumps(text))
    with pytest.raises(RollstreamError, match="found Text"):
        source_of(root)


def test_an_hdf5_dataset_comes_in_and_may_not_lead_out_of_its_file(root, tmp_path):
    h5py = pytest.importorskip("h5py")
    made = episode(*NESTED, 5)
    folder = dataset_folder(root, ID)
    (folder / "data").mkdir(parents=True)
    storage = MinariStorage.new(
        folder / "data", observation_space=NESTED[0], action_space=NESTED[1],
        data_format="hdf5", jpeg_encoding=False,
    )  # fmt: skip
    storage.update_metadata({"dataset_id": ID, "minari_version": minari.__version__})
    storage.update_episodes(
        [
            EpisodeBuffer(
                observations=nest(NESTED[0], made.observations),
                actions=nest(NESTED[1], made.actions),
                rewards=made.rewards,
                terminations=made.terminations,
                truncations=made.truncations,
            )
        ]
    )
    (found,) = by_dataset(source_of(root))
    assert_same(found, made)
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(40))
    for add in (
        lambda f: f.__setitem__("x", h5py.ExternalLink(str(secret), "/")),
        lambda f: f.__setitem__("x", h5py.SoftLink("/nowhere")),
        lambda f: f.create_dataset("x", (40,), "u1", external=[(str(secret), 0, 40)]),
    ):
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            add(file)
        with pytest.raises(DatasetError, match="'x' leads out of it"):
            source_of(root)
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            del file["x"]
    assert len(by_dataset(source_of(root))) == 1
