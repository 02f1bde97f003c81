"""The console over HTTP on a real cluster: what its pages show, who may ask, what acts do, what survives."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import CommittedOffset
from holdfast.model.types import TopicPartition
from holdfast.testing import Cluster, free_port, wait_for
from tests.conftest import SETTINGS
from tests.system.console_pages import ConsolePages, console_of, console_pid, news

pytestmark = pytest.mark.system

PARTITIONS = 210
NASTY = '<script>alert("x")</script>&/../%'
PAGES = (
    "/", "/brokers", "/topics", "/topic?name=orders", "/partitions", "/partitions?only=under", "/groups",
    "/reassignments",
    "/configs", "/configs?kind=broker&of=1", "/configs?kind=topic&of=orders&only=all", "/messages?topic=orders",
    "/message?topic=orders&partition=0&offset=1", "/acts", "/act/move", "/act/reset-offsets", "/unlock",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {**SETTINGS, "min.insync.replicas": "1", "message.max.bytes": "12000000"}
    with Cluster(brokers=2, log_dirs=2, settings=settings, console=True) as running:
        running.create_topic("orders", partitions=2, replication_factor=2)
        running.create_topic("many", partitions=PARTITIONS)
        running.produce("orders", [b'{"n": %d, "who": "<b>x</b>"}' % n for n in range(20)], partition=0)
        with BlockingClient(running.bootstrap) as client:
            for group in (NASTY, "readers"):
                client.commit_offsets(group, {TopicPartition("orders", 0): CommittedOffset(offset=5)})
        yield running


@pytest.fixture
def pages(cluster: Cluster) -> ConsolePages:
    found = ConsolePages(cluster.console_url)
    wait_for(lambda: "Broker 2" in found.get("/").text, "the console to know the brokers", timeout_s=20)
    return found


@pytest.fixture
def acting(cluster: Cluster, pages: ConsolePages) -> ConsolePages:
    pages.unlock(cluster.data_dir)
    return pages


def test_every_page_is_there_without_scripts_and_without_cookies(pages: ConsolePages) -> None:
    for path in PAGES:
        answer = pages.ask("GET", path)
        assert answer.status == 200, path
        assert answer.headers["content-security-policy"].startswith("default-src 'self'"), path
        assert "set-cookie" not in answer.headers, path
        assert len(answer.text) < 300_000, path
        assert answer.text.count("<h1>") == 1, path
        assert not re.search(r"<script(?! src=\"/static/)|\sstyle=|\son\w+=|javascript:", answer.text), path
    assert pages.get("/nowhere").status == pages.get("/topic", name="none").status == 404


def test_disks_are_shown_with_state_room_and_replicas(cluster: Cluster, pages: ConsolePages) -> None:
    text = pages.get("/").text
    for broker in (1, 2):
        for number in (1, 2):
            assert str(cluster.log_dir(broker, number)) in text
    assert text.count('<span class="badge good">online</span>') == 4
    assert "GiB usable of" in text
    path = str(cluster.log_dir(1, 1))
    assert "Replicas in " + path in pages.get("/disk", broker=1, path=path).text


def test_a_page_is_a_window_of_rows_with_search_and_sort(pages: ConsolePages) -> None:
    def names(**query: object) -> list[str]:
        return re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a>', pages.get("/partitions", **query).text)

    assert len(names()) == 200
    assert len(names(page=2, q="many")) == PARTITIONS - 200
    assert names(q="many-20") == ["many-20", *(f"many-{n}" for n in range(200, 210))]
    assert names(q="many", sort="-name")[0] == f"many-{PARTITIONS - 1}"
    part = pages.ask("GET", "/partitions?q=orders", **{"hx-request": "true", "hx-request-type": "partial"}).text
    assert "<html" not in part
    assert "orders-0" in part


def test_names_and_records_are_text_whatever_they_say(pages: ConsolePages) -> None:
    wait_for(lambda: escape(NASTY) in unquoted(pages.get("/groups").text), "the group to be shown", timeout_s=20)
    for answer in (pages.get("/groups"), pages.get("/group", name=NASTY), pages.get("/topic", name=NASTY)):
        assert "<script>alert" not in answer.text
        assert escape(NASTY) in unquoted(answer.text)
    text = pages.get("/messages", topic="orders", partition=0, start="earliest").text
    assert "<b>x</b>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def unquoted(text: str) -> str:
    """Jinja and Python escape a quotation mark in two ways."""
    return text.replace("&#34;", "&quot;")


def test_lag_is_shown(pages: ConsolePages) -> None:
    text = pages.get("/group", name="readers").text
    assert re.search(
        r"orders-0</a></th>\s*<td class=\"number\">5</td>\s*<td class=\"number\">20</td>\s*<td[^>]*>15<", text
    )


def test_other_hosts_and_origins_are_refused(pages: ConsolePages) -> None:
    assert pages.ask("GET", "/", host="evil.example").status == 403
    assert pages.ask("GET", "/static/console.js", host="evil.example").status == 403
    for headers in ({}, {"origin": "http://evil.example"}, {"origin": "null"}):
        answer = pages.ask("POST", "/unlock", "token=x", **headers)
        assert (answer.status, "Origin" in answer.text) == (403, True)
    answer = pages.post("/act/create-topic", {"topic": "x", "once": "1"})
    assert (answer.status, "need the token" in answer.text) == (403, True)
    assert pages.post("/unlock", {"token": "wrong"}).status == 403
    assert pages.ask("DELETE", "/", origin=pages.origin).status == 403


def test_read_only_refuses_everything_but_reading(cluster: Cluster) -> None:
    with console_of(cluster.bootstrap, "--read-only", "--host", "0.0.0.0") as url:
        pages = ConsolePages(f"http://127.0.0.1:{url.rstrip('/').rpartition(':')[2]}/")
        text = pages.get("/").text
        assert "read only" in text
        assert "/act/" not in text
        for act in ("create-topic", "delete-topic", "move", "offline"):
            assert pages.post(f"/act/{act}", {"topic": "orders", "confirm": "orders", "once": "1"}).status == 403
        assert pages.post("/unlock", {"token": ""}).status == 403
    command = [sys.executable, "-m", "holdfast.cli.main", "console", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("holdfast console: --host 0.0.0.0: ")
    assert refused.stderr.count("\n") == 1


# -- records -------------------------------------------------------------------------------------------------------


def test_records_are_read_from_an_offset_a_time_or_by_what_they_contain(pages: ConsolePages) -> None:
    def offsets(**query: object) -> list[str]:
        text = pages.get("/messages", topic="orders", **query).text
        return re.findall(r'<th scope="row"><a [^>]*>(\d+:\d+)</a>', text)

    assert offsets(partition=0)[0] == "0:19"
    assert offsets(partition=0, start="offset", value=17) == ["0:17", "0:18", "0:19"]
    assert offsets(start="time", value="2099-01-01T00:00:00") == []
    assert offsets(contains='"n": 13,') == ["0:13"]
    assert "expected" in pages.get("/messages", topic="orders", start="time", value="soon").text
    assert pages.get("/messages", topic="orders", partition=7).status == 404
    shown = pages.get("/message", topic="orders", partition=0, offset=3, form="hex").text
    assert "00000000  7b 22 6e 22 3a 20 33" in shown
    assert pages.get("/message", topic="orders", partition=0, offset=99).status == 404


def test_a_record_of_ten_megabytes_is_cut_and_can_be_saved(cluster: Cluster, pages: ConsolePages) -> None:
    cluster.create_topic("large", config={"max.message.bytes": "12000000"})
    cluster.produce("large", [b"<i>" + b"x" * 10_000_000])
    wait_for(lambda: pages.get("/topic", name="large").status == 200, "the topic to be known", timeout_s=10)
    listed = pages.get("/messages", topic="large")
    assert "9.5 MiB, cut" in listed.text
    assert len(listed.text) < 20_000
    one = pages.get("/message", topic="large", partition=0, offset=0)
    assert len(one.text) < 100_000
    assert "&lt;i&gt;xxx" in one.text
    saved = pages.get("/message/value", topic="large", partition=0, offset=0)
    assert len(saved.text) == 10_000_003
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"].startswith("attachment")


def test_a_search_tells_how_far_it_is_and_a_tail_shows_what_is_written(cluster: Cluster, pages: ConsolePages) -> None:
    events = list(pages.events("/messages/search", topic="orders", start="earliest", contains='"n": 4,'))
    assert [name for name, _ in events] == ["message", "progress", "over"]
    assert "0:4</a>" in events[0][1]
    told = news(events[1][1])
    assert str(told["text"]).startswith("1 found in 20 records")
    assert (told["over"], told["share"]) == (True, 1.0)

    cluster.create_topic("tailed")
    wait_for(lambda: pages.get("/topic", name="tailed").status == 200, "the topic to be known", timeout_s=10)
    tail = pages.events("/messages/tail", topic="tailed")
    assert news(next(tail)[1])["text"] == "waiting for records"
    cluster.produce("tailed", [b"fresh <b>"])
    assert "fresh &lt;b&gt;" in next(tail)[1]
    tail.close()


# -- news ----------------------------------------------------------------------------------------------------------


def test_pages_hear_of_a_change(cluster: Cluster, pages: ConsolePages) -> None:
    stream = pages.events("/events")
    first = news(next(stream)[1])
    cluster.create_topic("heard")
    for name, data in stream:
        assert name == "news"
        if news(data)["version"] != first["version"] and "topic made: heard" in pages.get("/").text:
            break
    stream.close()
    assert pages.get("/topic", name="heard").status == 200


# -- acts ----------------------------------------------------------------------------------------------------------


def test_topics_are_made_changed_and_deleted(cluster: Cluster, acting: ConsolePages) -> None:
    plan = acting.get("/act/create-topic", plan=1, topic="shop", partitions=2, replicas=1, configs="retention.ms=60000")
    made = "holdfast topics create --partitions 2 --replication-factor 1 --config retention.ms=60000"
    assert f"{made} --bootstrap-server {cluster.bootstrap} shop" in plan.text
    assert (
        "Done at"
        in acting.do("create-topic", topic="shop", partitions=2, replicas=1, configs="retention.ms=60000").text
    )
    refused = acting.get("/act/create-topic", plan=1, topic="shop")
    assert "It cannot be done" in refused.text
    wait_for(lambda: acting.get("/topic", name="shop").status == 200, "the topic to be known", timeout_s=10)
    form = {"kind": "topic", "of": "shop", "key": "retention.ms", "value": "70000", "way": "set"}
    assert "retention.ms is 60000 (DYNAMIC_TOPIC_CONFIG), then 70000" in acting.get("/act/config", plan=1, **form).text
    acting.do("config", **form)
    assert "70000" in acting.get("/configs", kind="topic", of="shop").text
    assert "It cannot be done" in acting.get("/act/config", plan=1, **{**form, "value": "soon"}).text

    once = acting.get("/act/delete-topic", plan=1, topic="shop").hidden("once")
    wrong = acting.post("/act/delete-topic", {"topic": "shop", "confirm": "orders", "once": once})
    assert (wrong.status, "what was typed is not shop" in wrong.text) == (422, True)
    first = acting.post("/act/delete-topic", {"topic": "shop", "confirm": "shop", "once": once})
    again = acting.post("/act/delete-topic", {"topic": "shop", "confirm": "shop", "once": once})
    assert (first.status, again.status) == (303, 303)
    assert first.headers["location"] == again.headers["location"]
    wait_for(lambda: acting.get("/topic", name="shop").status == 404, "the topic to be gone", timeout_s=10)
    lines = [json.loads(line) for line in (cluster.data_dir / "console-acts.log").read_text().splitlines()]
    mine = [line["act"] for line in lines if "shop" in json.dumps(line["asked"])]
    assert mine == ["create-topic", "config", "delete-topic"]


def test_offsets_of_a_group_are_reset_after_a_dry_run(cluster: Cluster, acting: ConsolePages) -> None:
    form = {"group": "readers", "to": "shift", "value": "-2", "topics": ""}
    plan = acting.get("/act/reset-offsets", plan=1, **form)
    assert re.search(r">orders-0</th><td[^>]*>5</td><td[^>]*>3</td><td[^>]*>-2</td>", plan.text)
    assert "--group readers --shift-by -2 --all-topics --execute" in plan.text
    assert ">orders-0: 3</li>" in acting.do("reset-offsets", confirm="readers", **form).text
    with BlockingClient(cluster.bootstrap) as client:
        assert client.committed("readers")[TopicPartition("orders", 0)].offset == 3
        client.commit_offsets("readers", {TopicPartition("orders", 0): CommittedOffset(offset=5)})


def test_replicas_are_moved_and_a_directory_is_cordoned(cluster: Cluster, acting: ConsolePages) -> None:
    one, two = (str(cluster.log_dir(1, n)) for n in (1, 2))
    here = one if ">orders-0</a>" in acting.get("/disk", broker=1, path=one, q="orders-0").text else two
    there = two if here == one else one
    form = {"broker": 1, "source": here, "target": there, "replicas": "orders-0"}
    plan = acting.get("/act/move", plan=1, **form)
    assert f"holdfast log-dirs move --broker 1 --to {there} --bootstrap-server" in plan.text
    assert "orders-0: begun" in acting.do("move", **form).text
    wait_for(
        lambda: ">orders-0</a>" not in acting.get("/disk", broker=1, path=here, q="orders-0").text,
        "the move",
        timeout_s=20,
    )
    assert "is in use" in acting.get("/act/online", plan=1, broker=1, path=there).text
    acting.do("cordon", broker=2, path=str(cluster.log_dir(2, 1)))
    wait_for(lambda: ">cordoned<" in acting.get("/").text, "the cordon to be shown", timeout_s=10)
    acting.do("uncordon", broker=2, path=str(cluster.log_dir(2, 1)))
    assert "the limit of its own is taken away" in acting.get("/act/throttle", plan=1, broker=1, rate="").text
    assert "976.6 KiB/s" in acting.do("throttle", broker=1, rate=1_000_000).text
    acting.do("throttle", broker=1, rate="")


def test_a_directory_is_added_and_removed(cluster: Cluster, acting: ConsolePages, tmp_path: Path) -> None:
    path, properties = str(tmp_path / "disk-3"), cluster.data_dir / "broker-1.properties"
    form = {"broker": 1, "path": path, "create": "no"}
    plan = acting.get("/act/add-directory", plan=1, **form).text
    assert f"holdfast log-dirs add --broker 1 --bootstrap-server {cluster.bootstrap} {path}" in plan
    assert "write it into log.dirs of its properties file" in plan
    assert "It failed: log directory " in acting.do("add-directory", **form).text, "it does not exist"
    assert "expected an absolute path" in acting.get("/act/add-directory", plan=1, broker=1, path="disk-3").text

    assert f"{path} is added, it is online" in acting.do("add-directory", **{**form, "create": "yes"}).text
    wait_for(lambda: f'data-path="{path}"' in acting.get("/").text, "its tile", timeout_s=10)
    assert path in properties.read_text(), "the next start has it too"
    assert "already" in acting.get("/act/add-directory", plan=1, **form).text

    full = str(cluster.log_dir(1, 1))
    assert "move them first" in acting.get("/act/remove-directory", plan=1, broker=1, path=full).text
    assert f"{path} is removed" in acting.do("remove-directory", broker=1, path=path).text
    wait_for(lambda: f'data-path="{path}"' not in acting.get("/").text, "its tile to go", timeout_s=10)
    assert path not in properties.read_text()


def test_a_directory_goes_out_of_use_and_back(cluster: Cluster, acting: ConsolePages) -> None:
    path = str(cluster.log_dir(2, 2))
    plan = acting.get("/act/offline", plan=1, broker=2, path=path)
    assert "the last copy" in plan.text
    assert f"<code>{path}</code>" in plan.text
    acting.do("offline", confirm=path, broker=2, path=path)
    wait_for(lambda: '<span class="badge bad">offline</span>' in acting.get("/").text, "the tile", timeout_s=10)
    assert "What was there" in acting.get("/disk", broker=2, path=path).text
    wait_for(lambda: "many-" in acting.get("/partitions", only="offline").text, "what nobody leads", timeout_s=10)
    assert "Done at" in acting.do("online", broker=2, path=path).text
    wait_for(lambda: "No partitions" in acting.get("/partitions", only="offline").text, "leaders", timeout_s=20)


def test_a_partition_gets_other_brokers_and_leaders_are_elected(cluster: Cluster, acting: ConsolePages) -> None:
    form = {"partitions": "orders-1", "brokers": "1"}
    plan = acting.get("/act/reassign", plan=1, **form)
    assert "--reassignment-json-file /dev/stdin" in plan.text
    assert "orders-1: begun" in acting.do("reassign", **form).text
    wait_for(lambda: cluster.describe(["orders"]).partitions["orders", 1].replicas == (1,), "the move", timeout_s=20)
    assert "none of these is being reassigned" in acting.get("/act/cancel-reassignment", plan=1).text
    nothing = acting.get("/act/elect", plan=1, kind="unclean", topic="orders")
    assert "has no partition in which that would elect anybody" in nothing.text


# -- what dies -----------------------------------------------------------------------------------------------------


def test_up_without_a_console_and_with_one_on_a_port(tmp_path: Path) -> None:
    up = [sys.executable, "-m", "holdfast.cli.main", "up", "--brokers", "1", "--data-dir", str(tmp_path)]

    def started(*options: str) -> tuple[str, str | None, int]:
        """The ready line, the console of endpoints.json, and the exit code."""
        command = [*up, "--port", str(free_port(1, beside=(100, 200))), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            console = json.loads((tmp_path / "endpoints.json").read_text())["console"]
            process.terminate()
            return line, console, process.wait(30)

    line, console, code = started("--no-console")
    assert (console, code, "console" in line) == (None, 0, False)
    assert not (tmp_path / "console.token").exists()
    port = free_port()
    line, console, code = started("--console-port", str(port))
    assert (console, code) == (f"http://127.0.0.1:{port}/", 0)
    assert line.endswith(f" console=http://127.0.0.1:{port}/\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = str(taken.getsockname()[1])
        refused = subprocess.run(
            [*up, "--console-port", number], capture_output=True, text=True, timeout=30, check=False
        )
    assert refused.returncode == 1
    assert f"--console-port {number}: Address already in use: expected a free port" in refused.stderr


def test_a_killed_console_is_there_again_on_its_port(cluster: Cluster, pages: ConsolePages) -> None:
    os.kill(console_pid(cluster), signal.SIGKILL)
    wait_for(lambda: "was killed by SIGKILL; started again" in cluster.log_tail(), "up to say so", timeout_s=10)
    wait_for(lambda: "Broker 2" in pages.get("/").text, "the pages", timeout_s=10)
    endpoints = json.loads((cluster.data_dir / "endpoints.json").read_text())
    assert endpoints["console"] == cluster.console_url


def test_a_broker_that_dies_is_away_and_the_others_tell(cluster: Cluster, pages: ConsolePages) -> None:
    cluster.kill(1)
    wait_for(lambda: "broker 1 is away" in pages.get("/").text, "the broker to be missed", timeout_s=20)
    text = pages.get("/").text
    assert "It is away. Below is what it told at" in text
    assert str(cluster.log_dir(1, 1)) in text
    cluster.revive()
    wait_for(lambda: "broker 1 is here" in pages.get("/").text, "the broker to be back", timeout_s=20)
