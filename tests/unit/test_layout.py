"""The rules of the tree: who may import whom, and what no file may say."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "schemas", "infra", "producers", "stream_processors", "learner", "archive",
    "rollstream", "benchmarks",
]  # fmt: skip
MAY_IMPORT = {
    "schemas": set(),
    "infra": {"schemas"},
    "producers": {"schemas", "infra"},
    "stream_processors": {"schemas", "infra"},
    "learner": {"schemas", "infra"},
    "archive": {"schemas", "infra"},
    "rollstream": set(PACKAGES),
    "benchmarks": {"schemas", "infra", "learner", "producers", "archive"},
}
FENCES = {
    "torch": {"learner"},
    "onnx": {"learner"},
    "onnxscript": {"learner"},
    "faust": {"stream_processors"},
    "gymnasium": {"producers", "archive", "benchmarks"},
    "pyarrow": {"archive"},
    "minari": {"archive"},
    "onnxruntime": {"producers", "learner"},
    "kazoo": {"infra"},
    "av": {"producers"},
}
CLIENTS = {"Producer", "Consumer", "AdminClient", "KazooClient"}
FILES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda p: str(p.relative_to(ROOT))
)


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@each_file
def test_packages_talk_through_topics_only(path):
    package = package_of(path)
    ours = imported(path) & set(PACKAGES) - {package}
    assert ours <= MAY_IMPORT[package]


@each_file
def test_third_parties_stay_behind_their_fences(path):
    for library in imported(path) & set(FENCES):
        assert package_of(path) in FENCES[library], library


@each_file
def test_clients_are_made_only_in_infra(path):
    if package_of(path) == "infra":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in CLIENTS


@each_file
def test_nothing_that_travelled_is_unpickled(path):
    forbidden = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}
    assert not imported(path) & forbidden
    text = path.read_text()
    assert not re.search(r"(?<!safetensors\.)torch\.load\(", text)
    assert "allow_pickle=True" not in text


def test_the_fences_catch_what_they_are_for(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("import torch.nn\nfrom learner.train import run\n")
    assert imported(path) == {"torch", "learner"}


def test_every_package_is_listed():
    listed = (ROOT / "pyproject.toml").read_text()
    for path in FILES:
        package = ".".join(path.relative_to(ROOT).parent.parts)
        assert f'"{package}"' in listed
