"""The console in a real browser: what changes without a reload, what scripts add, keyboard and accessibility."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from holdfast.client.blocking import BlockingClient
from holdfast.client.disks import change_disk
from holdfast.protocol.operating import DirAction
from holdfast.testing import Cluster, wait_for
from tests import browsers
from tests.system.console_pages import ConsolePages, console_pid

pytestmark = pytest.mark.system

TABS = 10
"""More than the connections that a browser opens to a host: each with a stream of its own would wait for ever."""
QUICK_MS = 10_000
"""It takes two seconds on a quiet machine; tests run beside others."""
SLOW_MS = 15_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"default.replication.factor": "1", "min.insync.replicas": "1"}
    with Cluster(brokers=2, log_dirs=2, settings=settings, console=True) as running:
        running.create_topic("orders", partitions=4)
        running.produce("orders", [b'{"n": %d}' % n for n in range(200)])
        pages = ConsolePages(running.console_url)
        wait_for(lambda: "orders" in pages.get("/topics").text, "the console to know the topic", timeout_s=20)
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.browser() as running:
        yield running


@pytest.fixture
def context(chromium: Browser, cluster: Cluster) -> Iterator[BrowserContext]:
    found = chromium.new_context(base_url=cluster.console_url, viewport={"width": 1280, "height": 900})
    found.set_default_timeout(SLOW_MS)
    yield found
    found.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Nothing may be refused by the policy of the pages, and no script may fail."""
    found = context.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    yield found
    assert wrong == []


def change(cluster: Cluster, broker: int, path: str, action: DirAction) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.metadata([])
        client.run(change_disk(client.aio, broker, action, path, force=True))


def tile(page: Page, path: str) -> Any:
    return page.locator(f'article[data-path="{path}"]')


def followed(page: Page, path: str = "/") -> None:
    """The page is there, and hears of news."""
    page.goto(path)
    page.wait_for_function("window.htmx !== undefined")


def test_a_disk_that_goes_offline_is_shown_without_a_reload(cluster: Cluster, page: Page) -> None:
    bad, good = str(cluster.log_dir(1, 2)), str(cluster.log_dir(2, 1))
    followed(page)
    expect(tile(page, bad).locator(".badge").first).to_have_text("online")
    page.evaluate("path => { document.querySelector(`article[data-path='${path}']`).kept = true; }", good)
    change(cluster, 1, bad, DirAction.OFFLINE)
    expect(tile(page, bad).locator(".badge").first).to_have_text("offline", timeout=QUICK_MS)
    expect(tile(page, bad).locator(".why")).not_to_be_empty()
    assert page.evaluate("path => document.querySelector(`article[data-path='${path}']`).kept", good) is True
    change(cluster, 1, bad, DirAction.ONLINE)
    expect(tile(page, bad).locator(".badge").first).to_have_text("online", timeout=SLOW_MS)


def test_a_search_is_typed_and_the_table_follows(page: Page) -> None:
    followed(page, "/partitions")
    expect(page.locator("tbody tr")).not_to_have_count(1)
    page.get_by_label("Search partitions").press_sequentially("orders-2")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?q=orders-2$"))
    assert page.get_by_label("Search partitions").input_value() == "orders-2"


def test_records_are_followed_as_they_are_written_and_searched(cluster: Cluster, page: Page) -> None:
    followed(page, "/messages?topic=orders")
    page.get_by_role("button", name="Follow what is written").click()
    expect(page.locator("#progress")).to_contain_text("waiting for records")
    cluster.produce("orders", [b"fresh <i>news</i>"])
    expect(page.locator("#records pre", has_text="fresh <i>news</i>")).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Follow what is written")).to_be_visible()

    page.get_by_label("Contains").fill('"n": 77}')
    page.get_by_role("button", name="Show").click()
    page.get_by_role("button", name="Search all of it").click()
    expect(page.locator("#progress")).to_contain_text("It has ended")
    expect(page.locator("#records tr")).to_have_count(1)


def test_an_act_is_done_by_the_keyboard_alone(cluster: Cluster, page: Page) -> None:
    page.goto("/unlock")
    page.get_by_label("Token").focus()
    page.keyboard.type((cluster.data_dir / "console.token").read_text().strip())
    page.keyboard.press("Enter")
    expect(page.locator("header")).to_contain_text("acts unlocked")
    page.goto("/act/create-topic")
    page.get_by_label("Name").focus()
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    expect(page.locator(".command")).to_contain_text("holdfast topics create")
    page.get_by_role("button", name="Make it").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".done")).to_be_visible()
    before = page.url
    page.reload()
    assert page.url == before
    expect(page.get_by_text("topic typed is made")).to_be_visible()


def test_ten_tabs_hear_although_a_browser_opens_six_connections(cluster: Cluster, context: BrowserContext) -> None:
    tabs = [context.new_page() for _ in range(TABS)]
    for each in tabs:
        followed(each, "/topics")
    cluster.create_topic("everywhere")
    for each in tabs:
        each.bring_to_front()
        expect(each.get_by_role("link", name="everywhere")).to_be_visible(timeout=SLOW_MS)


def test_a_killed_console_is_right_again_by_itself(cluster: Cluster, page: Page) -> None:
    followed(page)
    expect(page.locator("#trouble")).to_be_hidden()
    os.kill(console_pid(cluster), signal.SIGKILL)
    expect(page.locator("#trouble")).to_contain_text("does not answer")
    expect(page.locator("#trouble")).to_be_hidden()
    cluster.create_topic("afterwards")
    expect(page.locator("ol.changes")).to_contain_text("afterwards")


def test_nothing_serious_is_in_the_way_of_anybody(context: BrowserContext) -> None:
    page = context.new_page()
    paths = {
        "/": "light", "/topic?name=orders": "dark", "/messages?topic=orders": "light",
        "/act/move?broker=1&plan=1": "dark",
    }  # fmt: skip
    for path, scheme in paths.items():
        page.emulate_media(color_scheme=scheme)
        page.goto(path)
        found = Axe().run(page).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
