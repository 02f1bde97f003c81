"""What tools ask through the store: decided as by the API, and answered once."""

import asyncio

import pytest

from holdfast.metadata.store import Asked, DeletionAsked, ElectionAsked, ReassignmentAsked
from holdfast.model.types import TopicPartition
from tests.unit.broker.conftest import until
from tests.unit.broker.test_controller_loop import create, reign


def test_R_28_R_43_each_request_is_decided_as_by_the_api(caplog: pytest.LogCaptureFixture) -> None:
    """What is refused is a line of the log that names it, and is answered too."""

    async def check() -> None:
        async with reign(3) as one:
            await one.loop.submit(create("t"))
            at, none, answers = TopicPartition("t", 0), TopicPartition("none", 0), []
            before = one.loop.image.topics["t"].partitions[0].replicas
            other = next(broker for broker in (1, 2, 3) if broker not in before)

            async def ask(asked: Asked) -> None:
                one.loop.asked(asked, lambda: answers.append(asked))
                await until(lambda: answers[-1:] == [asked])

            await ask(ReassignmentAsked(replicas={at: (other, before[1]), none: (1,)}))
            assert one.loop.image.topics["t"].partitions[0].target == (other, before[1])
            assert "of none-0 is refused: Unable to find a topic named none." in caplog.text
            caplog.clear()
            await ask(ElectionAsked(partitions=(at, none)))
            assert "of none-0 is refused" in caplog.text
            await ask(DeletionAsked(topics=("unknown", "t")))
            assert "of unknown is refused" in caplog.text
            assert "t" not in one.loop.image.topics
            assert len(answers) == 3

    asyncio.run(check())


def test_R_28_topics_are_not_deleted_where_that_is_off(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with reign(settings={"delete.topic.enable": "false"}) as one:
            await one.loop.submit(create("t"))
            decided = asyncio.Event()
            one.loop.asked(DeletionAsked(topics=("t",)), decided.set)
            await until(decided.is_set)
            assert "t" in one.loop.image.topics
            assert "delete.topic.enable is false" in caplog.text

    asyncio.run(check())


def test_H_08_a_request_is_not_answered_by_a_reign_that_is_over() -> None:
    """The next controller finds it."""

    async def check() -> None:
        async with reign() as one:
            await one.loop.submit(create("t"))
            answers: list[str] = []
            one.commits_may_go_on.clear()
            one.loop.asked(DeletionAsked(topics=("t",)), lambda: answers.append("decided"))
            await until(lambda: one.thread.waiting)
            one.loop.close()
            one.commits_may_go_on.set()
            one.loop.asked(DeletionAsked(topics=("t",)), lambda: answers.append("after the end"))
            await until(lambda: len(asyncio.all_tasks()) == 1)
            assert answers == []

    asyncio.run(check())
