"""The page's files: nothing inline, nothing from elsewhere, texts only as texts."""

import hashlib
import re
from pathlib import Path

import pytest

from infra.monitoring.dashboard.app import STATIC

PAGE = (STATIC / "index.html").read_text()
OURS = [p for p in STATIC.rglob("*.js") if "vendor" not in p.parts]
each_script = pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)


@each_script
def test_texts_are_only_set_as_texts(path):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc"
        r"|createContextualFragment|\beval\b|new Function|setHTML|javascript:"
    )
    assert not re.search(forbidden, path.read_text())


@each_script
def test_scripts_are_small_and_import_what_exists(path):
    text = path.read_text()
    assert len(text.splitlines()) < 300
    for name in re.findall(r'from "([^"]+)"', text):
        assert (path.parent / name).resolve().is_file(), name


@each_script
def test_what_is_imported_is_exported_and_used(path):
    text = path.read_text()
    for names, module in re.findall(
        r'^import \{([^}]+)\} from "([^"]+)"', text, re.MULTILINE
    ):
        exports = (path.parent / module).read_text()
        for name in filter(None, map(str.strip, names.split(","))):
            assert re.search(
                rf"export (async )?(function|const|class) {name}\b", exports
            ), name
            assert len(re.findall(rf"\b{name}\b", text)) > 1, name


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere():
    assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|https?://", PAGE)
    for script in re.findall(r"<script([^>]*)>(.*?)</script>", PAGE, re.DOTALL):
        assert "src=" in script[0] and not script[1]
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', PAGE):
        assert (STATIC / path.removeprefix("/static/")).is_file(), path


def test_each_element_that_a_script_asks_for_is_there_once():
    asked = {
        name
        for path in OURS
        for name in re.findall(r'\bat\("([\w-]+)"\)', path.read_text())
    }
    ids = re.findall(r'\bid="([\w-]+)"', PAGE)
    assert len(asked) > 20 and len(ids) == len(set(ids))
    assert asked <= set(ids)


def test_styles_name_colours_in_one_place():
    for path in (STATIC / "css").glob("*.css"):
        if path.name != "tokens.css":
            assert not re.search(r"#[0-9a-f]{3,8}\b|rgb", path.read_text()), path.name


def test_what_others_wrote_is_as_they_published_it():
    listed = re.findall(
        r"\| `([\w/.-]+)` \| .* \| `([0-9a-f]{64})` \|",
        (STATIC / "vendor/README.md").read_text(),
    )
    assert len(listed) == 3
    for name, digest in listed:
        path = STATIC / "vendor" / name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, name
        assert (path.parent / "LICENSE").is_file()
    known = {"README.md", "LICENSE"} | {Path(name).name for name, _ in listed}
    assert {p.name for p in (STATIC / "vendor").rglob("*") if p.is_file()} == known
