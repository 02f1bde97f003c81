"""How long a Metadata answer is kept for a death that nobody here has heard of yet."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker.handlers.metadata import SETTLE_S, YOUNG_S, settle_s
from holdfast.broker.session import Session
from tests.unit.broker.test_connection import connected


@pytest.mark.parametrize(
    ("age_s", "kept_s"),
    [
        (0.0, SETTLE_S),
        (0.001, SETTLE_S - 0.001),
        (SETTLE_S, 0.0),
        (0.03, 0.0),
        (YOUNG_S + 0.001, SETTLE_S),
        (60, SETTLE_S),
    ],
)
def test_the_first_question_of_a_new_connection_counts_from_its_beginning(age_s: float, kept_s: float) -> None:
    assert settle_s(Session(unasked_since_s=1000.0), 1000.0 + age_s) == pytest.approx(kept_s)


def test_a_later_question_counts_from_itself() -> None:
    session = Session(unasked_since_s=1000.0)
    settle_s(session, 1000.001)
    assert settle_s(session, 1000.002) == SETTLE_S
    assert settle_s(session, 1000.02) == SETTLE_S


def test_a_connection_knows_when_it_began() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        async with connected() as peer:
            since_s = peer.connection.session.unasked_since_s
            assert since_s is not None and before_s <= since_s <= loop.time()

    asyncio.run(check())
