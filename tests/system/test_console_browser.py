"""The console in a real browser: what changes without a reload, what scripts add, keyboard and accessibility."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from playwright.sync_api import BrowserContext, Page, expect

from holdfast.client.blocking import BlockingClient
from holdfast.client.disks import change_disk
from holdfast.client.views import CommittedOffset
from holdfast.model.types import TopicPartition
from holdfast.protocol.operating import DirAction
from holdfast.testing import Cluster, wait_for
from tests.conftest import SETTINGS
from tests.system.console_clicks import (
    SOON_MS,
    Countdown,
    beyond_tab,
    do,
    followed,
    is_the_same,
    mark,
    planned,
    state,
    tab_of,
    tab_to,
    tile,
    unlock,
)
from tests.system.console_pages import ConsolePages, console_pid

pytestmark = pytest.mark.system

TABS = 10
"""More than the connections that a browser opens to a host: each with a stream of its own would wait for ever."""
NASTY = '<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2">'


def subscribed(cluster: Cluster) -> None:
    """A consumer of the group protocol, which has read and left."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "subscribed", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    wait_for(lambda: consumer.poll(0.2), "a record")
    consumer.commit(offsets=[ConfluentPartition("orders", 0, 120)], asynchronous=False)
    consumer.close()


def assigned(cluster: Cluster) -> None:
    """One that chose its partitions itself and only keeps its offsets in a group."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "assigned", "enable.auto.commit": False})
    consumer.assign([ConfluentPartition("orders", 0, 0)])
    consumer.commit(offsets=[ConfluentPartition("orders", 0, 120)], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {**SETTINGS, "min.insync.replicas": "1", "message.max.bytes": "12000000"}
    with Cluster(brokers=2, log_dirs=2, settings=settings, console=True) as running:
        running.create_topic("orders", partitions=4)
        running.produce("orders", [b'{"n": %d}' % n for n in range(200)])
        with BlockingClient(running.bootstrap) as client:
            for group in ("g", NASTY):
                client.commit_offsets(group, {TopicPartition("orders", 0): CommittedOffset(offset=5)})
        subscribed(running)
        assigned(running)
        pages = ConsolePages(running.console_url)
        wait_for(lambda: "orders" in pages.get("/topics").text, "the console to know the topic", timeout_s=20)
        yield running


def change(cluster: Cluster, broker: int, path: str, action: DirAction) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.metadata([])
        client.run(change_disk(client.aio, broker, action, path, force=True))


def test_a_disk_that_goes_offline_is_shown_without_a_reload(cluster: Cluster, page: Page) -> None:
    bad, good = str(cluster.log_dir(1, 2)), str(cluster.log_dir(2, 1))
    followed(page)
    expect(state(page, bad)).to_have_text("online")
    mark(page)
    change(cluster, 1, bad, DirAction.OFFLINE)
    expect(state(page, bad)).to_have_text("offline", timeout=SOON_MS)
    expect(tile(page, bad).locator(".why")).not_to_be_empty()
    assert is_the_same(page, good)
    change(cluster, 1, bad, DirAction.ONLINE)
    expect(state(page, bad)).to_have_text("online")


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
    followed(page)
    tab_to(page, "Unlock acts")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Unlock acts")).to_be_visible()
    tab_to(page, "Token")
    page.keyboard.type((cluster.data_dir / "console.token").read_text().strip())
    page.keyboard.press("Enter")
    expect(page.locator("header")).to_contain_text("acts unlocked")
    tab_to(page, "Make a topic")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Make a topic")).to_be_visible()
    tab_to(page, "Name")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    expect(page.locator(".command")).to_contain_text("holdfast topics create")
    tab_to(page, "Make it")
    page.keyboard.press("Enter")
    expect(page.locator(".done")).to_be_visible()
    before = page.url
    page.reload()
    assert page.url == before
    expect(page.get_by_text("topic typed is made")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/", "/topic?name=orders", "/messages?topic=orders", "/act/reset-offsets?group=g&plan=1"]
)
def test_tab_gets_everywhere(page: Page, path: str) -> None:
    followed(page, path)
    assert beyond_tab(page) == []


def test_a_topic_is_made_and_deleted_and_two_tabs_agree(cluster: Cluster, context: BrowserContext) -> None:
    with tab_of(context) as page, tab_of(context) as other:
        unlock(page, cluster.data_dir)
        followed(other, "/topics")
        page.goto("/topics")
        page.get_by_role("link", name="Make a topic…").click()
        planned(page, topic="clicked", partitions="3", configs="retention.ms=60000")
        do(page, "Make it")
        soon = Countdown(SOON_MS)
        expect(other.get_by_role("link", name="clicked")).to_be_visible(timeout=soon.left_ms)
        followed(page, "/topics")
        expect(page.get_by_role("link", name="clicked")).to_be_visible(timeout=soon.left_ms)
        row = other.locator("tr", has_text="clicked")
        assert row.locator("td").all_inner_texts()[0] == "3"
        assert set(cluster.describe(["clicked"]).partitions) == {("clicked", n) for n in range(3)}

        page.get_by_role("link", name="clicked").click()
        page.get_by_role("link", name="Delete…").click()
        page.get_by_label(re.compile("^Type ")).fill("orders")
        page.get_by_role("button", name="Delete it").click()
        expect(page.get_by_role("alert").filter(has_text="what was typed is not clicked")).to_be_visible()
        do(page, "Delete it", confirm="clicked")
        expect(other.get_by_role("link", name="clicked")).to_have_count(0, timeout=SOON_MS)
        assert ("clicked", 0) not in cluster.describe(None).partitions


def test_a_directory_is_cordoned_added_and_removed(cluster: Cluster, page: Page, tmp_path: Path) -> None:
    unlock(page, cluster.data_dir)
    path, new = cluster.log_dir(2, 1), tmp_path / "disk-3"
    for verb, count in (("Cordon", 1), ("Uncordon", 0)):
        followed(page)
        tile(page, path).get_by_role("link", name=f"{verb}…").click()
        do(page, verb)
        followed(page)
        expect(tile(page, path).get_by_text("cordoned", exact=True)).to_have_count(count, timeout=SOON_MS)
    new.mkdir()
    page.locator("#broker-2").get_by_role("link", name="Add a directory…").click()
    planned(page, path=str(new))
    do(page, "Add it")
    followed(page)
    expect(state(page, new)).to_have_text("online", timeout=SOON_MS)
    assert str(new) in cluster.describe_log_dirs(2)
    tile(page, new).get_by_role("link", name="Remove…").click()
    do(page, "Remove it")
    followed(page)
    expect(tile(page, new)).to_have_count(0, timeout=SOON_MS)
    assert str(new) not in cluster.describe_log_dirs(2)


@pytest.mark.parametrize("group", ["subscribed", "assigned"])
def test_offsets_of_a_group_are_reset(cluster: Cluster, page: Page, group: str) -> None:
    """A group of Spark's: tests/spark/test_console_reset.py."""
    unlock(page, cluster.data_dir)
    followed(page, "/groups")
    page.get_by_role("link", name=group).click()
    page.get_by_role("link", name="Reset offsets…").click()
    planned(page, to="offset", value="42")
    cells = page.locator("tr", has_text="orders-0").locator("td")
    assert cells.all_inner_texts() == ["120", "42", "-78"]
    do(page, "Reset them", confirm=group)
    with BlockingClient(cluster.bootstrap) as client:
        assert {tp.partition: at.offset for tp, at in client.committed(group).items()} == {0: 42}


def test_names_and_records_harm_nothing(cluster: Cluster, page: Page) -> None:
    """A topic cannot be named so, a group can, and so can all that is in a record; one of them has ten megabytes."""
    cluster.create_topic("large", config={"max.message.bytes": "12000000"})
    cluster.produce("large", [(NASTY.encode(), NASTY.encode() * 150_000)])
    followed(page, "/groups")
    page.get_by_role("link", name=NASTY).click()
    expect(page.get_by_role("heading", name=NASTY)).to_be_visible()
    for path in (
        f"/topic?name={quote(NASTY)}",
        f"/partitions?q={quote(NASTY)}",
        f"/act/create-topic?plan=1&topic={quote(NASTY)}",
    ):
        page.goto(path)
        assert page.evaluate("window.harmed") is None, path
    followed(page, "/messages?topic=large")
    expect(page.locator("#records pre").first).to_contain_text("<script>")
    page.locator("#records th a").click()
    expect(page.get_by_text("Save the value")).to_be_visible()
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.documentElement.outerHTML.length") < 1_000_000


def test_ten_tabs_hear_although_a_browser_opens_six_connections(cluster: Cluster, context: BrowserContext) -> None:
    tabs = [context.new_page() for _ in range(TABS)]
    for each in tabs:
        followed(each, "/topics")
    cluster.create_topic("everywhere")
    soon = Countdown(SOON_MS)
    for each in tabs:
        each.bring_to_front()
        expect(each.get_by_role("link", name="everywhere")).to_be_visible(timeout=soon.left_ms)


def test_a_killed_console_is_right_again_by_itself(cluster: Cluster, page: Page) -> None:
    followed(page)
    expect(page.locator("#trouble")).to_be_hidden()
    os.kill(console_pid(cluster), signal.SIGKILL)
    expect(page.locator("#trouble")).to_contain_text("does not answer")
    expect(page.locator("#trouble")).to_be_hidden()
    cluster.create_topic("afterwards")
    expect(page.locator("ol.changes")).to_contain_text("afterwards")


def test_nothing_serious_is_in_the_way_of_anybody(cluster: Cluster, context: BrowserContext) -> None:
    page = context.new_page()
    disk = quote(str(cluster.log_dir(1, 1)))
    paths = {
        "/": "light", "/topic?name=orders": "dark", "/messages?topic=orders": "light", "/brokers": "dark",
        "/act/move?broker=1&plan=1": "dark", f"/disk?broker=1&path={disk}": "light",
        "/message?topic=orders&partition=0&offset=1": "dark",
        "/group?name=g": "light", "/configs": "light", "/reassignments": "dark", "/acts": "light", "/unlock": "dark",
    }  # fmt: skip
    for path, scheme in paths.items():
        page.emulate_media(color_scheme=scheme)
        page.goto(path)
        found = Axe().run(page).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
