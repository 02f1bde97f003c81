"""What becomes of a broker that is asked for its directories and closes the connection."""

from __future__ import annotations

import asyncio
import gc
import socket
from dataclasses import replace

import pytest

from holdfast.client.admin import AdminClient
from holdfast.console.looking import KAFKA_FOR_MS, Turns, look
from holdfast.console.snapshot import Snapshot
from tests.unit.client import fakes
from tests.unit.client.test_survey import Kafkas
from tests.unit.console.snapshots import disk, snapshot

NOW_MS = 1_700_000_200_000


def looks(before: Snapshot | None, *times_ms: int) -> list[tuple[bool, str | None, list[str]]]:
    """Of broker 1, at these times: whether it counts as Kafka's, why it told nothing, its directories."""
    kafkas, turns, found = Kafkas(fakes), Turns(), []

    async def ask() -> None:
        nonlocal before
        async with kafkas.broker:
            client = AdminClient(f"127.0.0.1:{kafkas.broker.port}", timeout_s=10.0)  # it knows no broker yet
            for at_ms in times_ms:
                before = await look(client, before, turns, at_ms)
                told = before.disks[1]
                found.append((told.is_kafka, told.error, [d.path for d in told.disks.disks]))
            client.close()
            assert {key for key, _, _ in kafkas.broker.seen} <= {18, 3, 35, 46, 60}, "no log's end, no group"

    asyncio.run(ask())
    return found


def test_a_broker_that_has_no_words_of_ours_tells_what_kafkas_tell() -> None:
    assert looks(None, NOW_MS, NOW_MS + 1) == [(True, None, ["/d1", "/d2"])] * 2


def test_one_of_ours_that_died_in_that_moment_is_none_of_kafkas() -> None:
    first, second = looks(snapshot(disks={1: [disk("/ours")]}), NOW_MS, NOW_MS + 800)
    assert (first[0], first[2]) == (False, ["/ours"])
    assert first[1] is not None
    assert "closed the connection" in first[1]
    assert second == (True, None, ["/d1", "/d2"])


def test_one_that_counts_as_kafkas_is_asked_again_after_a_while() -> None:
    """A broker of Holdfast's in its place answers then; this one does not."""
    before = snapshot(disks={1: [disk("/d1")]})
    kafka = replace(before, disks={1: replace(before.disks[1], is_kafka=True)})
    assert [each[0] for each in looks(kafka, NOW_MS, NOW_MS + KAFKA_FOR_MS)] == [True, True]


def test_a_look_that_is_given_up_leaves_no_line_of_asyncios() -> None:
    """Of a cluster that takes connections and says nothing."""
    told: list[str] = []

    async def ask(port: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        client = AdminClient(f"127.0.0.1:{port}", timeout_s=10.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await look(client, snapshot(disks={1: [disk("/ours")]}), Turns(), NOW_MS)
        client.close()
        gc.collect()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(ask(silent.getsockname()[1]))
    assert told == []
