"""Browsers of this machine: the system's, and Playwright's own.

``python -m tests.browsers`` prints where Playwright's own is, or would be.
"""

import shutil

from playwright.sync_api import Error as BrowserError
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# A container's root has no sandbox, and often little shared memory.
_OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage"]


def launch(playwright):
    """Start the first browser that does start."""
    paths = [*filter(None, map(shutil.which, NAMES)), None]
    problems = []
    for path in paths:
        try:
            return playwright.chromium.launch(executable_path=path, args=_OPTIONS)
        except BrowserError as exc:
            problems.append(f"{path or 'of Playwright'}: {exc.message}")
    raise AssertionError(
        "no browser starts, and the dashboard's page cannot be tested. `make browser` "
        "installs chromium: with apt as root, else Playwright's own. Tried "
        + "; ".join(problems)
    )


if __name__ == "__main__":
    with sync_playwright() as playwright:
        print(playwright.chromium.executable_path)
