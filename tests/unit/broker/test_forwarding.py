"""What only the controller decides, while it is just not this broker any more, or again."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from holdfast.broker.access import Access
from holdfast.broker.controller_loop import ControllerLoop
from holdfast.broker.entity import build
from holdfast.broker.handlers.base import HandlersHost, RequestContext
from holdfast.broker.handlers.topics import handle_create_topics
from holdfast.broker.membership import Membership
from holdfast.broker.quota_view import QuotaView
from holdfast.broker.session import Session
from holdfast.model.config import BrokerConfig
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.framing import encode_body
from tests.unit.broker.conftest import DEADLINE_S, until
from tests.unit.broker.test_controller_loop import reign
from tests.unit.broker.test_membership import member

VERSION = 7
REQUEST = build(
    request_type(ApiKey.CREATE_TOPICS, VERSION),
    {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 0, "validate_only": False},
)


class Here:
    """The broker that is asked."""

    access = Access()
    broker_id = 2
    config = BrokerConfig.parse({})
    quota_view = QuotaView()
    quotas = None

    def __init__(self, controller: ControllerLoop | None, membership: Membership) -> None:
        self.controller = controller
        self.membership = membership

    def create(self) -> Any:
        """As a client asks it; the bytes of another broker's answer, or one of ours."""
        connection: Any = SimpleNamespace(session=Session())
        ctx = RequestContext(
            broker=cast("HandlersHost", self), connection=connection, api_key=int(ApiKey.CREATE_TOPICS),
            version=VERSION, correlation_id=5, client_id=None, body=encode_body(REQUEST),
        )  # fmt: skip
        return handle_create_topics(ctx, REQUEST)


def test_a_topic_that_is_being_made_when_the_claim_is_lost_is_asked_of_the_next_controller() -> None:
    """CreateTopics has no field to say NOT_CONTROLLER in: its connection would be closed instead."""

    async def check() -> None:
        async with reign() as one, member() as (two, controller):
            here = Here(one.loop, two.membership)
            one.commits_may_go_on.clear()
            creating = asyncio.ensure_future(here.create())
            await until(lambda: one.thread.waiting)
            one.loop.close()  # and ``here.controller`` is still that one, for a moment
            answer = await creating
            assert isinstance(answer, bytes) and answer[4:8] == (5).to_bytes(4, "big")
            assert len(controller.of(ApiKey.CREATE_TOPICS)) == 1

    asyncio.run(check())


def test_a_broker_forwards_nothing_to_itself() -> None:
    """By the store it is the controller, and it has not begun, or has just ended: it would ask itself again and again.
    Once its reign has begun it decides."""

    async def check() -> None:
        async with reign() as one, member() as (two, controller):
            lost = len(two.lost)
            two.elect(2, controller)
            controller.hang_up()
            await until(lambda: len(two.lost) > lost)
            here = Here(None, two.membership)
            creating = asyncio.ensure_future(here.create())
            before = controller.heartbeats
            await until(lambda: controller.heartbeats >= before + 3)
            assert not creating.done()
            here.controller = one.loop
            async with asyncio.timeout(DEADLINE_S):
                answer = await creating
            assert [int(topic.error_code) for topic in answer.topics] == [0]
            assert controller.of(ApiKey.CREATE_TOPICS) == []

    asyncio.run(check())
