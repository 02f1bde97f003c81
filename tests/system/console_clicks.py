"""A console as somebody uses it: a tab of a real browser, and the clicks that make an act."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, expect

SLOW_MS = 15_000
"""For what takes as long as it takes, on a machine that has other things to do."""
SOON_MS = 2_000
"""What the console promises: how soon a page shows what has happened."""
expect.set_options(timeout=SLOW_MS)


@contextmanager
def context_of(chromium: Browser, url: str) -> Iterator[BrowserContext]:
    """Tabs that share cookies, as those of one person do."""
    found = chromium.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    found.set_default_timeout(SLOW_MS)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def tab_of(context: BrowserContext) -> Iterator[Page]:
    """A tab. Nothing may be refused by the policy of the pages, no script may fail, and no page may ask."""
    page = context.new_page()
    wrong: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("dialog", dismiss)
    yield page
    assert wrong == []


def followed(page: Page, path: str = "/") -> None:
    """The page is there, and hears of news."""
    page.goto(path)
    page.wait_for_function("window.htmx !== undefined")


def unlock(page: Page, folder: Path) -> None:
    page.goto("/unlock")
    page.get_by_label("Token").fill((folder / "console.token").read_text().strip())
    page.get_by_role("button", name="Unlock").click()
    expect(page.locator("header")).to_contain_text("acts unlocked")


def tile(page: Page, path: object) -> Locator:
    """Of a directory, on the page of disks."""
    return page.locator(f'article[data-path="{path}"]')


def state(page: Page, path: object) -> Locator:
    """What a tile says of its directory."""
    return tile(page, path).locator(".badge").first


def do(page: Page, verb: str, *, confirm: str | None = None) -> None:
    """On the page of a plan: the last click, and the page of what became of it."""
    if confirm is not None:
        page.get_by_label(re.compile("^Type ")).fill(confirm)
    page.get_by_role("button", name=verb, exact=True).click()
    expect(page.locator(".done")).to_be_visible()


def planned(page: Page, **fields: str) -> None:
    """On the page of an act: its form is filled in by the labels of its fields, and the plan is asked for."""
    for name, value in fields.items():
        field = page.locator(f'form.act:not(.do) [name="{name}"]')
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.get_by_role("button", name="Show what it would do").click()
    expect(page.get_by_role("heading", name="What it would do")).to_be_visible()


def mark(page: Page) -> None:
    """So that ``is_the_same`` knows a page that was loaded again, and tiles that were made anew."""
    page.evaluate(
        "() => { window.kept = true; document.querySelectorAll('article').forEach(a => { a.kept = true; }); }"
    )


def is_the_same(page: Page, *paths: object) -> bool:
    """Whether it was not loaded again since ``mark``, and these tiles are those of then."""
    kept = "paths => window.kept && paths.every(p => document.querySelector(`article[data-path='${p}']`).kept)"
    return bool(page.evaluate(kept, list(map(str, paths))))


class Countdown:
    """What is left of a time, for the next thing that has to be so within it."""

    def __init__(self, limit_ms: float) -> None:
        self._ends_s = time.monotonic() + limit_ms / 1000

    @property
    def left_ms(self) -> float:
        """At least a moment: what is so already is in time."""
        return max(1.0, (self._ends_s - time.monotonic()) * 1000)


def tab_to(page: Page, name: str) -> None:
    """Presses Tab until what has this name has the focus, and shows it."""
    for _ in range(200):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => { const e = document.activeElement;
                return [(e.labels && e.labels.length ? e.labels[0] : e).textContent.trim(),
                        getComputedStyle(e).outlineStyle]; }"""
        )
        if focus[0] == name:
            assert focus[1] != "none", f"{name} does not show that it has the focus"
            return
    raise AssertionError(f"Tab does not get to {name} on {page.url}")


def beyond_tab(page: Page) -> list[str]:
    """What can be clicked or filled in and is not reached by Tab; nothing that is hidden."""
    count = page.evaluate(
        """() => { const kinds = 'a[href], button, input, select, textarea, [onclick]';
            window.clickable = [...document.querySelectorAll(kinds)]
                .filter(e => e.checkVisibility() && e.type !== 'hidden');
            document.activeElement.blur();
            return window.clickable.length; }"""
    )
    for _ in range(count + 5):
        page.keyboard.press("Tab")
        page.evaluate("() => { document.activeElement.reached = true; }")
    found = page.evaluate("() => window.clickable.filter(e => !e.reached).map(e => e.outerHTML)")
    return list(found)
