"""InitProducerId of a broker that has no id left."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.access import Access
from holdfast.broker.handlers.base import RequestContext
from holdfast.broker.handlers.producer_ids import handle_init_producer_id
from holdfast.broker.producer_ids import ProducerIdShell
from holdfast.model.errors import HoldfastError, NotControllerError
from holdfast.protocol.apis import ApiKey
from tests.unit.broker.conftest import until
from tests.unit.broker.test_membership import Member, member

REQUEST = SimpleNamespace(transactional_id=None)


async def asked(one: Member) -> tuple[Any, list[str | None]]:
    """What a client is answered, or the error, and why its connection was closed."""
    closed: list[str | None] = []
    broker: Any = SimpleNamespace(access=Access(), broker_id=2, membership=one.membership)
    broker.producer_ids = ProducerIdShell(broker)
    connection: Any = SimpleNamespace(close=closed.append)
    ctx = RequestContext(
        broker=broker, connection=connection, api_key=ApiKey.INIT_PRODUCER_ID, version=2, correlation_id=1,
        client_id=None, body=b"",
    )  # fmt: skip
    try:
        return await handle_init_producer_id(ctx, REQUEST), closed
    except HoldfastError as error:
        return error, closed


def test_a_broker_of_its_cluster_hands_out_ids_of_the_block_that_it_gets() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            controller.special[ApiKey.ALLOCATE_PRODUCER_IDS] = {"producer_id_start": 3000, "producer_id_len": 1000}
            answer, closed = await asked(one)
            assert (int(answer.error_code), answer.producer_id, answer.producer_epoch, closed) == (0, 3000, 0, [])

    asyncio.run(check())


@pytest.mark.parametrize("is_fenced", [False, True])
def test_H_08_a_broker_out_of_its_cluster_closes_the_connection_of_a_producer_that_it_has_no_id_for(
    is_fenced: bool,
) -> None:
    """librdkafka asks it again for ever on an error; while it belongs to the cluster the error is for it to answer."""

    async def check() -> None:
        async with member() as (one, controller):
            controller.special[ApiKey.ALLOCATE_PRODUCER_IDS] = {"error_code": NotControllerError("no")}
            controller.special[ApiKey.BROKER_HEARTBEAT] = {"is_fenced": is_fenced}
            await until(lambda: one.membership.is_current is not is_fenced)
            error, closed = await asked(one)
            assert isinstance(error, HoldfastError)
            assert len(closed) == is_fenced, closed

    asyncio.run(check())
