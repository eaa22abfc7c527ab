"""The README tells the truth: what it names exists, and what exists it names."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from infra.settings import Settings
from rollstream.cli import app
from schemas.topics import PREFIX, TOPICS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DESIGN = (ROOT / "docs/design.md").read_text()


def commands(group=None, prefix="rollstream"):
    for name, command in (group or get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_is_named(command):
    assert command in README


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.suffix)
def test_every_topic_has_its_row(topic):
    name = PREFIX + ("<exp>." if topic.per_experiment else "") + topic.suffix
    (row,) = [line for line in README.splitlines() if line.startswith(f"| `{name}` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        f"`{name}`",
        topic.key,
        ", ".join(topic.records),
        topic.cleanup,
        ", ".join(topic.written_by),
        ", ".join(topic.read_by),
    ]


def test_every_setting_is_named():
    for field in Settings.model_fields.values():
        name = str(field.validation_alias)
        short = name.replace("ROLLSTREAM_KAFKA", "")
        assert name in README or short in README, name


def test_files_that_are_named_exist():
    text = README + DESIGN
    links = re.findall(r"\]\(([\w/.-]+)\)", text)
    files = re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.(?:py|md|yaml|lock))?)`", text)
    named = {*links, *files}
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_targets_of_make_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z]+)", README)) - {"help"}:
        assert re.search(rf"^{target}:.*##", makefile, re.M), target


def test_nothing_is_left_to_fill_in():
    assert "@@" not in README + DESIGN
