"""When a group's offset went back, and when a client took it back itself."""

from __future__ import annotations

from tests.checks.commits import GRACE_NS, Commits

LATE = GRACE_NS + 1


def _told(*offsets: int) -> Commits:
    commits = Commits()
    for offset in offsets:
        commits.told(offset)
    return commits


def test_an_offset_that_was_kept_is_there() -> None:
    commits = _told(10, 20)
    commits.answered(20, commits.count, 0)
    commits.answered(25, commits.count, 0)
    assert commits.wrong(LATE) == [] == commits.wrong(None)


def test_an_offset_that_went_back_is_forgotten() -> None:
    commits = _told(10, 20)
    commits.answered(10, commits.count, 0)
    assert commits.wrong(LATE) == [(10, 20)]
    assert commits.wrong(5) == [], "another member may be about to be told of a commit"
    assert commits.wrong(None) == [(10, 20)]


def test_a_group_that_knows_no_offset_any_more_has_forgotten_it() -> None:
    commits = _told(10)
    commits.answered(0, commits.count, 0)
    assert commits.wrong(LATE) == [(0, 10)]


def test_a_client_whose_older_commit_is_kept_last_took_its_offset_back_itself() -> None:
    """Seen with librdkafka: 1231 was under way when the coordinator died, and was sent again after 1232."""
    before = _told(1091, 1232, 1231)
    before.answered(1231, before.count, 0)
    assert before.wrong(LATE) == []
    after = _told(1091, 1232)
    after.answered(1231, after.count, 0)
    after.told(1231)
    assert after.wrong(LATE) == []


def test_a_commit_that_is_told_while_the_group_is_asked_may_be_too_late_for_the_answer() -> None:
    commits = _told(10)
    count = commits.count
    commits.told(20)
    commits.answered(10, count, 0)
    assert commits.wrong(None) == []


def test_an_older_commit_before_the_newer_one_explains_nothing() -> None:
    commits = _told(15, 20, 30)
    commits.answered(15, commits.count, 0)
    assert commits.wrong(LATE) == [(15, 30)]
    again = _told(15, 20, 15, 30)
    again.answered(15, again.count, 0)
    assert again.wrong(LATE) == [(15, 30)]


def test_a_commit_that_was_told_to_have_failed_need_not_be_there_and_may_be() -> None:
    commits = _told(10)
    commits.told(30, kept=False)
    commits.answered(10, commits.count, 0)
    commits.told(20)
    commits.told(15, kept=False)
    commits.answered(15, commits.count, 0)
    assert commits.wrong(None) == []
    commits.answered(10, commits.count, 0)
    assert commits.wrong(None) == [(10, 20)]
