"""`make setup` gets a browser where it can, once, and goes on where it cannot."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browsers import launch

ROOT = Path(__file__).parents[2]


class Machine:
    """A machine of which a test says what its commands do; each call is noted."""

    def __init__(self, path):
        self.bin, self.calls = path / "bin", path / "calls"
        (path / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/browser", path / ".ci/browser")
        (path / ".venv/bin").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("bash", "env", "dirname", "tail", "ln", "cat"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.path = path
        self.command("id", "echo 0")
        self.command("python", "exit 1", self.path / ".venv/bin")
        self.command("playwright", "exit 1", self.path / ".venv/bin")

    def command(self, name, does, where=None):
        path = (where or self.bin) / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> {self.calls}\n{does}\n')
        path.chmod(0o755)

    def run(self, *arguments):
        self.calls.write_text("")
        done = subprocess.run(
            [self.path / ".ci/browser", *arguments],
            env={"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr, self.calls.read_text()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


INSTALLS = 'ln -s "$0" "${0%/*}/chromium"'


def test_nothing_is_done_or_said_where_there_is_one(machine):
    machine.command("chromium", "exit 0")
    machine.command("apt-get", "exit 1")
    code, said, calls = machine.run()
    assert (code, said) == (0, "") and "apt-get" not in calls


def test_root_gets_debians_also_where_no_list_of_packages_was_fetched(machine):
    machine.command(
        "apt-get",
        f'[[ "$0" == *chromium ]] && exit 0\n'
        f'echo much; [ "$1" = update ] && exec touch {machine.path}/lists\n'
        f"[ -e {machine.path}/lists ] || exit 100\n{INSTALLS}",
    )
    (machine.bin / "touch").symlink_to(shutil.which("touch"))
    code, said, calls = machine.run()
    assert (code, said) == (0, "installing chromium for the dashboard's tests\n")
    asked = [line.split()[1] for line in calls.splitlines() if "apt-get" in line]
    assert asked[:3] == ["install", "update", "install"]
    assert "playwright" not in calls
    code, said, calls = machine.run()
    assert (code, said) == (0, "") and " install" not in calls and "update" not in calls


def test_who_is_not_root_gets_playwrights_own(machine):
    machine.command("id", "echo 1000")
    machine.command("apt-get", "exit 1")
    own = machine.path / "chrome"
    machine.command(
        "playwright", f"echo 'exit 0' > {own}; exec chmod +x {own}",
        machine.path / ".venv/bin",
    )  # fmt: skip
    (machine.bin / "chmod").symlink_to(shutil.which("chmod"))
    machine.command("python", f"echo {own}", machine.path / ".venv/bin")
    code, said, calls = machine.run()
    assert (code, said.count("\n")) == (0, 1)
    assert "playwright install chromium" in calls and "apt-get" not in calls


def test_a_stub_that_does_not_run_is_no_browser(machine):
    # Ubuntu's package of that name asks for snap.
    machine.command("chromium", "exit 1")
    machine.command("apt-get", "exit 0")
    code, said, calls = machine.run()
    assert "playwright install --with-deps chromium" in calls
    assert code == 0 and "will fail" in said


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--needed"], 1)])
def test_set_up_goes_on_without_one_and_says_so(machine, arguments, code):
    machine.command("apt-get", "echo 'no network' >&2; exit 100")
    found, said, _ = machine.run(*arguments)
    assert found == code
    assert "no network" in said and "make browser" in said
    assert len(said.splitlines()) < 8


def test_a_test_without_a_browser_fails_and_says_how_to_mend_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with sync_playwright() as playwright, pytest.raises(AssertionError) as failed:
        launch(playwright)
    assert "make browser" in str(failed.value) and "apt as root" in str(failed.value)
