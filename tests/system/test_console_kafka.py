"""The console of a cluster of Apache Kafka 4.3.0 from Maven: the same pages, without what only Holdfast has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.kafka import Peer, fetch
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from holdfast.client.blocking import BlockingClient
from holdfast.model.types import TopicPartition
from holdfast.testing import free_port, wait_for
from tests import browsers
from tests.system.console_clicks import context_of, do, followed, planned, tab_of, unlock
from tests.system.console_pages import ConsolePages, console_of, news
from tests.system.on_disks import QUIET
from tests.system.test_console import PAGES

pytestmark = pytest.mark.system

TIMEOUT_S = 30
RECORDS = 20
ONLY_OURS = ("online", "offline", "cordon", "uncordon", "add-directory", "remove-directory")


class SmallKafka(Peer):
    """One node that is broker and controller, in little memory."""

    def _java(self, main: str, *arguments: str, heap: list[str]) -> list[str]:
        return super()._java(main, *arguments, heap=["-Xmx384M", "-XX:TieredStopAtLevel=1"])

    def _quorum_keys(self, node: int) -> dict[str, object]:
        return super()._quorum_keys(node) | {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


@dataclass(frozen=True, slots=True)
class KafkaConsole:
    """A console of Kafka's, unlocked."""

    bootstrap: str
    url: str
    folder: Path
    pages: ConsolePages


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConsole]:
    folder = tmp_path_factory.mktemp("kafka")
    port = free_port(2, beside=(500,))
    peer = SmallKafka(jars=fetch(), data_dir=folder, brokers=1, log_dirs=2, port=port, settings=[])
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        write(peer.bootstrap)
        with console_of(peer.bootstrap, "--data-dir", str(folder)) as url:
            pages = ConsolePages(url)
            wait_for(
                lambda: "readers" in pages.get("/groups").text, "the console to know the group", timeout_s=TIMEOUT_S
            )
            pages.unlock(folder)
            yield KafkaConsole(peer.bootstrap, url, folder, pages)
    finally:
        peer.stop()


def write(bootstrap: str) -> None:
    """A topic, records, and a group that has read a part of them."""
    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, **QUIET}
    admin = AdminClient(quiet)
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(TIMEOUT_S)
    producer = Producer({**quiet, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("orders", b'{"n": %d, "who": "<b>x</b>"}' % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**quiet, "group.id": "readers", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), "an assignment", timeout_s=TIMEOUT_S)
    consumer.commit(offsets=[ConfluentPartition("orders", 0, 5)], asynchronous=False)
    consumer.close()


def test_every_page_is_there_without_what_only_ours_have(kafka: KafkaConsole) -> None:
    for path in (*PAGES, "/group?name=readers"):
        answer = kafka.pages.get(path)
        assert answer.status == 200, path
        assert answer.text.count("<h1>") == 1, path
        offered = set(re.findall(r'href="/act/([a-z-]+)', answer.text))
        assert not offered & set(ONLY_OURS), path
    assert "acts unlocked" in kafka.pages.get("/").text


def test_disks_have_replicas_and_room_and_no_probe(kafka: KafkaConsole) -> None:
    text = kafka.pages.get("/").text
    tiles = re.findall(r'<article [^>]*data-path="([^"]*)">(.*?)</article>', text, re.DOTALL)
    assert [Path(path).name for path, _ in tiles] == ["log-dir-1", "log-dir-2"]
    assert all('<span class="badge good">online</span>' in tile and "GiB usable of" in tile for _, tile in tiles)
    assert "probe" not in text
    assert ">Healthy<" in text
    for act in ONLY_OURS:
        plan = kafka.pages.get(f"/act/{act}", plan=1, broker=1, path=tiles[0][0]).text
        assert "broker 1 is no broker of Holdfast&#39;s and has no request for it" in plan, act


def test_records_groups_and_configurations(kafka: KafkaConsole) -> None:
    pages = kafka.pages
    shown = pages.get("/messages", topic="orders", partition=0, start="offset", value=17).text
    assert re.findall(r'<th scope="row"><a [^>]*>(\d+:\d+)</a>', shown) == ["0:17", "0:18", "0:19"]
    assert "&lt;b&gt;x&lt;/b&gt;" in shown
    assert "7b 22 6e 22 3a 20 33" in pages.get("/message", topic="orders", partition=0, offset=3, form="hex").text
    events = list(pages.events("/messages/search", topic="orders", start="earliest", contains='"n": 4,'))
    assert str(news(events[-2][1])["text"]).startswith(f"1 found in {RECORDS} records")
    assert re.search(r"orders-0</a></th>\s*<td class=\"number\">5</td>\s*<td class=\"number\">20</td>\s*<td[^>]*>15<",
                     pages.get("/group", name="readers").text)  # fmt: skip
    assert "log.dirs" in pages.get("/configs", kind="broker", of=1).text
    form = {"kind": "topic", "of": "orders", "key": "retention.ms", "value": "70000", "way": "set"}
    assert "retention.ms is 70000" in pages.do("config", **form).text
    assert "70000" in pages.get("/configs", kind="topic", of="orders").text


def test_a_replica_moves_between_kafkas_directories(kafka: KafkaConsole) -> None:
    pages = kafka.pages
    paths = re.findall(r'data-path="([^"]*)"', pages.get("/").text)
    here, there = paths if holds(pages, paths[0]) else paths[::-1]
    assert "976.6 KiB/s" in pages.do("throttle", broker=1, rate=1_000_000).text
    form = {"broker": 1, "source": here, "target": there, "replicas": "orders-0"}
    assert "orders-0: begun" in pages.do("move", **form).text
    wait_for(lambda: holds(pages, there) and not holds(pages, here), "the move", timeout_s=20)
    assert "broker 1 moves none of these" in pages.get("/act/cancel-move", plan=1, broker=1).text


def holds(pages: ConsolePages, path: str) -> bool:
    """Whether the page of a directory has the replica of orders-0, or its copy."""
    return ">orders-0</a>" in pages.get("/disk", broker=1, path=path, q="orders-0").text


def test_a_topic_and_a_group_are_clicked(kafka: KafkaConsole) -> None:
    with browsers.browser() as chromium, context_of(chromium, kafka.url) as context, tab_of(context) as page:
        unlock(page, kafka.folder)
        page.goto("/topics")
        page.get_by_role("link", name="Make a topic…").click()
        planned(page, topic="clicked", partitions="3")
        do(page, "Make it")
        followed(page, "/topics")
        page.get_by_role("link", name="clicked").click()
        page.get_by_role("link", name="Delete…").click()
        do(page, "Delete it", confirm="clicked")
        followed(page, "/topics")
        expect(page.get_by_role("link", name="clicked")).to_have_count(0)
        page.get_by_label("Search topics").press_sequentially("order")
        expect(page.locator("tbody tr")).to_have_count(1)

        followed(page, "/groups")
        page.get_by_role("link", name="readers").click()
        page.get_by_role("link", name="Reset offsets…").click()
        planned(page, to="shift", value="-2")
        assert page.locator("tr", has_text="orders-0").locator("td").all_inner_texts() == ["5", "3", "-2"]
        do(page, "Reset them", confirm="readers")
    with BlockingClient(kafka.bootstrap) as client:
        assert client.committed("readers")[TopicPartition("orders", 0)].offset == 3
