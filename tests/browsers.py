"""A real browser for the tests of pages: which one, and what to do where there is none.

Looked for in HOLDFAST_BROWSER (a path), then by name on PATH, then in .venv/browser. Nothing is skipped without one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "chrome")
FOLDER = Path(__file__).parent.parent / ".venv" / "browser"


class NoBrowserError(Exception):
    """The message says where one was looked for and how to get one."""


def browser_path() -> str:
    """NoBrowserError."""
    given = os.environ.get("HOLDFAST_BROWSER")
    if given:
        if not os.access(given, os.X_OK):
            raise NoBrowserError(f"HOLDFAST_BROWSER {given}: expected the program of a Chromium")
        return given
    for name in NAMES:
        for folder in (None, str(FOLDER)):
            found = shutil.which(name, path=folder)
            if found is not None:
                return found
    raise NoBrowserError(
        f"no browser: looked for {', '.join(NAMES)} on PATH and in {FOLDER}. As root: apt-get install "
        "--no-install-recommends chromium-headless-shell; otherwise put one there, or name it by HOLDFAST_BROWSER"
    )


@contextmanager
def browser() -> Iterator[Browser]:
    """Running, without a screen."""
    path = browser_path()
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield running
        finally:
            running.close()
