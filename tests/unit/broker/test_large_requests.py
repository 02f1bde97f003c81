"""Requests that name many things: the loop goes on meanwhile, few are under way together, too much is not decoded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker import dispatch, large_requests
from holdfast.broker.access import Access
from holdfast.broker.handlers.base import respond
from holdfast.broker.large_requests import AT_ONCE, PLACES, TOGETHER, LargeRequests, gathered, paced
from holdfast.model.errors import GroupAuthorizationFailedError
from holdfast.protocol.apis import INTERNAL, ApiKey
from holdfast.protocol.framing import encode_request_raw
from holdfast.security.resources import Operation
from tests.unit.broker.rights import CLUSTER, granted
from tests.unit.broker.test_dispatch import DEADLINE_S, Client, on_a_loop, served, served_by

GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER = 30, 31, 41
MANY = 4 * AT_ONCE
ALTER_VERSION = INTERNAL[ApiKey.ALTER_PARTITION].max


def looked_for(count: int) -> dict[str, Any]:
    return {"key_type": 0, "coordinator_keys": [f"{i:x}" for i in range(count)]}


async def turns_until(client: Client, values: dict[str, Any]) -> tuple[int, Any]:
    """How many turns the loop had until the answer was there, and it."""
    asking = asyncio.ensure_future(client.ask(ApiKey.FIND_COORDINATOR, 4, values))
    turns = 0
    async with asyncio.timeout(DEADLINE_S):
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
    return turns, await asking


@on_a_loop
async def test_a_large_one_has_the_answer_that_a_small_one_has_for_each() -> None:
    async with served(access=Access(granted())) as client:
        few = await client.ask(ApiKey.FIND_COORDINATOR, 4, looked_for(2))
        many = await client.ask(ApiKey.FIND_COORDINATOR, 4, looked_for(MANY))
    assert [each.key for each in many.coordinators] == looked_for(MANY)["coordinator_keys"]
    assert many.coordinators[:2] == few.coordinators
    assert {int(each.error_code) for each in many.coordinators} == {GROUP_AUTHORIZATION_FAILED}


@on_a_loop
async def test_the_loop_goes_on_while_it_is_decoded_and_encoded() -> None:
    async with served(access=Access(granted())) as client:
        await turns_until(client, looked_for(1))
        at_once, _ = await turns_until(client, looked_for(AT_ONCE))
        beside, answer = await turns_until(client, looked_for(40 * AT_ONCE))
    assert len(answer.coordinators) == 40 * AT_ONCE
    assert beside > 50 * at_once


def altered(count: int) -> dict[str, Any]:
    """AlterPartition of so many things: topics and partitions count."""
    partitions = [{"partition_index": i} for i in range(count - 1)]
    return {"broker_id": 1, "broker_epoch": 1, "topics": [{"topic_name": "t", "partitions": partitions}]}


@pytest.mark.parametrize(
    ("api_key", "version", "values"),
    [(ApiKey.FIND_COORDINATOR, 4, looked_for), (ApiKey.ALTER_PARTITION, ALTER_VERSION, altered)],
)
@on_a_loop
async def test_one_that_names_too_much_is_not_decoded(
    api_key: int,
    version: int,
    values: Callable[[int], dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is one that only brokers may send, of who is none."""
    monkeypatch.setattr(dispatch, "MOST", 1000)
    async with served(access=Access(granted())) as client:
        assert await client.ask(api_key, version, values(1000)) is not None
        assert await client.ask(api_key, version, values(1001)) is None
    assert f"127.0.0.1:1 closed: API key {int(api_key)} version {version} cannot be handled" in caplog.text
    assert "names too much: expected 1000 elements at most" in caplog.text


@on_a_loop
async def test_what_a_broker_tells_has_the_size_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MOST", 1000)
    may = Access(granted((Operation.CLUSTER_ACTION, CLUSTER)))
    async with served(access=may, controller=None, broker_id=7) as client:
        answer = await client.ask(ApiKey.ALTER_PARTITION, ALTER_VERSION, altered(1001))
    assert int(answer.error_code) == NOT_CONTROLLER


@pytest.mark.parametrize("api_key", [ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA])
@on_a_loop
async def test_an_order_of_who_may_give_none_is_refused_unread(api_key: int) -> None:
    """However large it is; and its connection is no broker's, which would not be closed for being idle."""
    async with served(access=Access(granted())) as client:
        await client.send(encode_request_raw(api_key, INTERNAL[ApiKey(api_key)].max, 5, "t", b"\xff" * 100))
        frame = await client.receive()
        assert int.from_bytes(frame[5:7], "big") == CLUSTER_AUTHORIZATION_FAILED
        assert not client.connection.is_lasting


@on_a_loop
async def test_one_that_has_no_place_waits_and_keeps_nobody_else_waiting() -> None:
    async with served(access=Access(granted())) as client:
        places = client.dispatcher.large.places
        for _ in range(PLACES):
            await places.acquire()
        async with served_by(client.dispatcher) as other:
            waiting = asyncio.ensure_future(client.ask(ApiKey.FIND_COORDINATOR, 4, looked_for(AT_ONCE + 1)))
            assert len((await other.ask(ApiKey.FIND_COORDINATOR, 4, looked_for(AT_ONCE))).coordinators) == AT_ONCE
            assert client.dispatcher.large._thread is None, "nothing of it is decoded"
        places.release()
        assert len((await waiting).coordinators) == AT_ONCE + 1
        assert not places.locked(), "it gave its place back"


@on_a_loop
async def test_one_that_waits_for_others_gives_its_place_back_before() -> None:
    """JoinGroup, until all members are there."""
    protocols = [{"name": f"{i:x}", "metadata": b""} for i in range(MANY)]
    values = {"group_id": "g", "session_timeout": 9000, "rebalance_timeout": 9000, "protocols": protocols}
    async with served(access=Access(granted())) as client:
        asked = asyncio.Event()
        goes_on = asyncio.Event()

        async def handler(ctx: Any, request: Any) -> Any:
            assert len(request.protocols) == MANY
            asked.set()
            await goes_on.wait()
            return respond(ctx, error_code=GroupAuthorizationFailedError(), members=())

        client.dispatcher._handlers[ApiKey.JOIN_GROUP] = handler
        places = client.dispatcher.large.places
        for _ in range(PLACES - 1):
            await places.acquire()
        waiting = asyncio.ensure_future(client.ask(ApiKey.JOIN_GROUP, 7, values))
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
        assert not places.locked()
        goes_on.set()
        assert int((await waiting).error_code) == GROUP_AUTHORIZATION_FAILED


@on_a_loop
async def test_what_is_done_beside_the_loop_has_a_thread_of_its_own() -> None:
    large = LargeRequests()
    try:
        names = [await large.beside(lambda: threading.current_thread().name) for _ in range(3)]
    finally:
        large.close()
    assert set(names) == {"large-requests_0"}


@on_a_loop
async def test_its_time_is_its_owners() -> None:
    """Where a quota counts it: of the processor, not of waiting for a turn."""
    spent = list[float]()

    class Owner:
        def spent(self, seconds: float) -> None:
            spent.append(seconds)

    large = LargeRequests()
    try:
        assert await large.beside(lambda: sum(range(1_000_000)), Owner()) == 499999500000
        with pytest.raises(ZeroDivisionError):
            await large.beside(lambda: 1 // 0, Owner())
    finally:
        large.close()
    assert len(spent) == 2
    assert spent[0] > 0.001 > spent[1]


@on_a_loop
async def test_paced_things_are_the_same_with_turns_between(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, turns = asyncio.get_running_loop(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop.call_soon(turn)
    monkeypatch.setattr(large_requests, "SLICE_S", 0.0)
    assert [each async for each in paced(range(100))] == list(range(100))
    assert turns == 100
    monkeypatch.setattr(large_requests, "SLICE_S", DEADLINE_S)
    assert [each async for each in paced(range(100))] == list(range(100))
    assert turns == 100, "none as long as it does not take long"


@on_a_loop
async def test_so_many_are_waited_for_together() -> None:
    waiting, most = 0, 0

    async def one(number: int) -> int:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0)
        waiting -= 1
        return number

    assert await gathered(one(i) for i in range(3 * TOGETHER + 1)) == list(range(3 * TOGETHER + 1))
    assert most == TOGETHER
