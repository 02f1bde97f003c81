"""What a run knows of the topics that come and go."""

from __future__ import annotations

from tests.chaos.topics import known, wrong_topics


def test_a_topic_is_there_after_it_was_made_and_gone_after_it_was_deleted() -> None:
    assert known(False, wanted=True, is_done=True) is True
    assert known(True, wanted=False, is_done=True) is False
    assert known(True, wanted=False, is_done=False) is None


def test_an_older_request_without_an_answer_may_be_done_after_a_later_one() -> None:
    """Found on hosts: a deletion whose connection had ended was read by a busy broker behind the creation of the same
    name, which had been acknowledged."""
    assert known(None, wanted=True, is_done=True) is None
    assert wrong_topics({"made": True, "unknown": None, "gone": False}, {"gone"}) == [
        "made was made and is not there", "gone was deleted and is there",
    ]  # fmt: skip
