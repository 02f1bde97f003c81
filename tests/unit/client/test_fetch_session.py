"""A consumer's fetch session: what each request names, and what it does when the broker does not play along."""

from __future__ import annotations

from holdfast.client.fetch_session import FetchSession
from holdfast.model.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def begun() -> FetchSession:
    session = FetchSession()
    session.answered(session.request({A: 1, B: 2}), 77)
    return session


def test_the_first_request_is_full_and_the_next_name_what_is_new() -> None:
    session = FetchSession()
    first = session.request({A: 1, B: 2})
    assert (first.session_id, first.epoch, first.changed, first.forgotten) == (0, 0, {A: 1, B: 2}, ())
    session.answered(first, 77)
    second = session.request({A: 1, B: 2})
    assert (second.session_id, second.epoch, second.changed, second.forgotten) == (77, 1, {}, ())
    third = session.request({B: 5, C: 0})
    assert (third.epoch, third.changed, third.forgotten) == (2, {B: 5, C: 0}, (A,))


def test_an_answer_that_was_given_up_counts_as_sent() -> None:
    session = begun()
    session.request({A: 1, B: 3})  # nobody reads the answer
    following = session.request({A: 1, B: 3})
    assert (following.epoch, following.changed) == (2, {})


def test_a_first_answer_that_was_given_up_leaves_no_session() -> None:
    session = FetchSession()
    session.request({A: 1})
    assert session.request({A: 1}).epoch == 0 and session.session_id == 0


def test_a_broker_that_gives_no_session_is_asked_in_full() -> None:
    session = FetchSession()
    session.answered(session.request({A: 1}), 0)
    assert session.request({A: 1}).changed == {A: 1}


def test_a_session_that_is_lost_is_begun_again() -> None:
    session = begun()
    session.request({A: 1})
    session.lost()
    again = session.request({A: 1})
    assert (again.session_id, again.epoch, again.changed) == (0, 0, {A: 1})
    session.answered(again, 78)
    assert session.request({A: 1}).session_id == 78


def test_epochs_begin_again_at_one() -> None:
    session = begun()
    session._epoch = 0x7FFFFFFF
    assert [session.request({A: 1}).epoch for _ in range(2)] == [0x7FFFFFFF, 1]
