"""What an operator does with the console on a bad day, clicked in a real browser while a stock producer writes:
replicas move, a disk dies for real, the controller is killed, the console is killed. Nothing that was acknowledged is
lost. One story: each test goes on where the one before has ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from holdfast.client.blocking import BlockingClient
from holdfast.client.disks import describe_disks
from holdfast.client.reassignments import throttle_moves
from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import EioDisk
from tests import browsers
from tests.conftest import STEADY_DISKS
from tests.system.console_clicks import (
    SLOW_MS,
    SOON_MS,
    Countdown,
    context_of,
    do,
    followed,
    is_the_same,
    mark,
    planned,
    state,
    tab_of,
    tile,
    unlock,
)
from tests.system.console_pages import console_pid
from tests.system.on_disks import Load

pytestmark = [pytest.mark.system, pytest.mark.story]

TOPIC, PARTITIONS = "orders", 20
PAD_BYTES = 60_000
"""Of each partition, so that there is something to copy."""
CRAWLING, SLOWLY, QUICKLY = 20_000, 500_000, 100_000_000
"""Bytes a second of each broker: a move of all takes a minute, three seconds, or none."""
AGAIN_MS = 5_000
"""How soon an open page is right again when the console was killed."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster, a tab on its disks with acts unlocked, and who writes meanwhile; all replicas of ``broker`` begin in
    ``a``."""

    cluster: Cluster
    page: Page
    second: Page
    load: Load
    broker: int
    controller: int

    @property
    def a(self) -> Path:
        return self.cluster.log_dir(self.broker, 1)

    @property
    def b(self) -> Path:
        return self.cluster.log_dir(self.broker, 2)

    def held(self, path: Path) -> int:
        """Replicas of the topic that the broker itself says are there."""
        found = self.cluster.describe_log_dirs(self.broker)[str(path)].replicas
        return sum(topic == TOPIC for topic, _ in found)

    def others(self) -> list[Path]:
        """Every directory but ``b``."""
        paths = [self.cluster.log_dir(broker, number) for broker in (1, 2, 3) for number in (1, 2)]
        return [path for path in paths if path != self.b]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Set up by clicks as well: the directory that has to stay empty is cordoned while the topic is made."""
    disks = {(broker, 2): EioDisk for broker in (1, 2, 3)}
    settings = {"log.dir.probe.interval.ms": "500", "log.segment.delete.delay.ms": "200", **STEADY_DISKS}
    with Cluster(disks=disks, settings=settings, console=True) as cluster, browsers.browser() as chromium:
        controller = cluster.describe([]).controller_id
        assert controller is not None
        broker = controller % 3 + 1
        with context_of(chromium, cluster.console_url) as context, tab_of(context) as page, tab_of(context) as second:
            unlock(page, cluster.data_dir)
            b = cluster.log_dir(broker, 2)
            cordoned(page, b, "Cordon")
            page.goto("/act/create-topic")
            planned(page, topic=TOPIC, partitions=str(PARTITIONS), replicas="3", configs="min.insync.replicas=2")
            do(page, "Make it")
            cluster.wait_in_sync([TOPIC])
            cordoned(page, b, "Uncordon")
            for partition in range(PARTITIONS):
                cluster.produce(TOPIC, [(os.urandom(PAD_BYTES), b"-1")], partition=partition)
            followed(page, "/reassignments")
            page.get_by_role("link", name="Limit moves…").click()
            planned(page, broker="", rate=str(CRAWLING))
            do(page, "Set the limit")
            load = Load(cluster, TOPIC, range(PARTITIONS), pause_s=0.05)
            made = Scene(cluster, page, second, load, broker, controller)
            assert (made.held(made.a), made.held(made.b)) == (PARTITIONS, 0)
            with load:  # at its end everything that was acknowledged is there, once
                yield made


def cordoned(page: Page, path: Path, verb: str) -> None:
    followed(page)
    tile(page, path).get_by_role("link", name=f"{verb}…").click()
    do(page, verb)
    followed(page)
    expect(tile(page, path).get_by_text("cordoned", exact=True)).to_have_count(1 if verb == "Cordon" else 0)


def throttled(scene: Scene, rate: int) -> None:
    with BlockingClient(scene.cluster.bootstrap) as client:
        client.run(throttle_moves(client.aio, [scene.broker], rate))


def under_way(scene: Scene) -> int:
    with BlockingClient(scene.cluster.bootstrap) as client:
        client.metadata([])
        return len(client.run(describe_disks(client.aio, scene.broker)).moves)


def moved(scene: Scene, source: Path, target: Path, count: int) -> None:
    """Begun by clicks, from the tile of the source; then back to the disks, in both tabs."""
    page = scene.page
    throttled(scene, CRAWLING)
    followed(page)
    tile(page, source).get_by_role("link", name="Move replicas…").click()
    planned(page, target=str(target))
    expect(page.locator("ul").filter(has_text="copied from")).to_contain_text(f"{count} replicas of broker")
    do(page, "Move")
    followed(scene.second)
    followed(page)


def half_way(scene: Scene, target: Path) -> None:
    for page in (scene.page, scene.second):
        mark(page)
    throttled(scene, SLOWLY)
    wait_for(lambda: scene.held(target) >= PARTITIONS // 2, "half of the replicas to have moved", interval_s=0.1)


def test_a_disk_dies_half_way_and_what_it_held_is_shown(scene: Scene) -> None:
    page, (a, b), disk = scene.page, (scene.a, scene.b), scene.cluster.disks[scene.broker, 2]
    moved(scene, a, b, PARTITIONS)
    half_way(scene, b)
    disk.fail()
    soon = Countdown(SOON_MS)
    for each in (page, scene.second):  # two tabs agree
        expect(state(each, b)).to_have_text("offline", timeout=soon.left_ms)
        expect(tile(each, b).locator(".why")).to_contain_text("Input/output error", timeout=soon.left_ms)
        expect(tile(each, a)).not_to_contain_text("on the way", timeout=soon.left_ms)
        expect(each.locator("ol.changes")).to_contain_text("was given up", timeout=soon.left_ms)
    for path in scene.others():
        expect(state(page, path)).to_have_text("online")
    assert is_the_same(page, *scene.others()) and is_the_same(scene.second, *scene.others())
    held = scene.held(a)
    assert 2 < held < PARTITIONS - 2, "about half way"
    scene.load.progress()

    tile(page, b).get_by_role("link", name=str(b)).click()
    expect(page.get_by_text("What was there, and who leads it now")).to_be_visible()
    rows = page.locator("tbody tr").filter(has_text=f"{TOPIC}-")
    expect(rows).to_have_count(PARTITIONS - held)
    for leader in rows.locator("td:nth-of-type(3)").all_inner_texts():
        assert int(leader) in {1, 2, 3} - {scene.broker}


def test_it_is_healed_by_a_click_and_all_move_again_but_one(scene: Scene) -> None:
    page, (a, b) = scene.page, (scene.a, scene.b)
    wait_for(lambda: mended(scene), "the broker to let go of the dead disk", timeout_s=30)
    followed(page)
    tile(page, b).get_by_role("link", name="Use again…").click()
    do(page, "Use it again")
    followed(page)
    expect(state(page, b)).to_have_text("online")
    scene.cluster.wait_in_sync([TOPIC])
    throttled(scene, QUICKLY)  # copies that were begun go on by themselves
    wait_for(lambda: not under_way(scene), "what was begun")

    moved(scene, b, a, scene.held(b))
    page.get_by_role("link", name="on the way elsewhere").click()
    row = page.locator("tbody tr").last
    name = row.locator("th").inner_text()
    row.get_by_role("link", name="Give up…").click()
    expect(page.get_by_text(f"{name} stays in {b}")).to_be_visible()
    do(page, "Give up")
    throttled(scene, QUICKLY)
    followed(page)
    expect(tile(page, a)).to_contain_text(f"{PARTITIONS - 1} replicas")
    expect(page.locator("ol.changes")).to_contain_text(f"the move of {name} was given up")
    assert scene.cluster.folder_of(scene.broker, TOPIC, int(name.rpartition("-")[2])).parent == b
    scene.load.progress()


def mended(scene: Scene) -> bool:
    try:
        scene.cluster.disks[scene.broker, 2].heal()
    except OSError:  # EBUSY
        return False
    return True


def test_the_controller_is_killed_half_way(scene: Scene) -> None:
    page, (a, b), dead = scene.page, (scene.a, scene.b), scene.cluster.describe([]).controller_id
    assert dead == scene.controller != scene.broker
    moved(scene, a, b, PARTITIONS - 1)
    half_way(scene, b)
    scene.cluster.kill(dead)
    soon = Countdown(SOON_MS)
    for each in (page, scene.second):
        expect(state(each, scene.cluster.log_dir(dead, 1))).to_have_text("away", timeout=soon.left_ms)
        expect(each.locator("ol.changes")).to_contain_text("is the controller", timeout=soon.left_ms)
    there = [path for path in (*scene.others(), b) if f"broker-{dead}/" not in str(path)]
    for path in there:
        expect(state(page, path)).to_have_text("online")
    throttled(scene, QUICKLY)
    expect(tile(page, b)).to_contain_text(f"{PARTITIONS} replicas")
    scene.load.progress()
    scene.cluster.revive()
    back = tile(page, scene.cluster.log_dir(dead, 1))
    expect(back.locator(".badge").first).to_have_text("online")
    expect(back.get_by_role("link", name="Cordon…")).to_be_visible()
    assert is_the_same(page, *there)
    scene.cluster.wait_in_sync([TOPIC])


def test_the_console_is_killed_half_way(scene: Scene) -> None:
    page, (a, b), url = scene.page, (scene.a, scene.b), scene.cluster.console_url
    moved(scene, b, a, PARTITIONS)
    half_way(scene, a)
    os.kill(console_pid(scene.cluster), signal.SIGKILL)
    again = Countdown(AGAIN_MS)
    trouble = page.locator("#trouble")
    expect(trouble).to_contain_text("does not answer", timeout=again.left_ms)
    throttled(scene, QUICKLY)
    expect(trouble).to_be_hidden(timeout=again.left_ms)
    wait_for(lambda: scene.held(a) == PARTITIONS, "all replicas to have moved", interval_s=0.1)
    within = Countdown(max(again.left_ms, SOON_MS))
    expect(tile(page, a)).to_contain_text(f"{PARTITIONS} replicas", timeout=within.left_ms)
    expect(tile(page, b)).not_to_contain_text("on the way", timeout=within.left_ms)
    assert is_the_same(page, *scene.others())
    assert page.url == url
    scene.load.progress()
    tile(page, b).get_by_role("link", name="Cordon…").click()
    expect(page.locator("header")).to_contain_text("acts unlocked")
    do(page, "Cordon")
    expect(page.get_by_text("is cordoned")).to_be_visible(timeout=SLOW_MS)
