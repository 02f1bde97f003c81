"""Who is logged in at a console, until when."""

from __future__ import annotations

from holdfast.console.sessions import IDLE_S, LONGEST_S, MOST_OF_A_USER, MOST_USERS, Sessions


def test_a_session_is_its_cookies_and_no_other() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("one", "alice", 0.0)
    sessions.begin("two", "bob", 0.0)
    assert sessions.user(["one"], 1.0) == "alice"
    assert sessions.user(["no", "two"], 1.0) == "bob"
    assert sessions.user(["on", "One", ""], 1.0) is sessions.user([], 1.0) is None
    sessions.end("one")
    sessions.end("never")
    assert sessions.user(["one"], 1.0) is None and sessions.users() == {"bob"}
    assert "two" not in repr(sessions._by_cookie), "what is in memory opens nothing"


def test_a_session_ends_when_nobody_uses_it_and_after_a_day_of_work() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("one", "alice", 0.0)
    now_s = 0.0
    while now_s + IDLE_S <= LONGEST_S:
        now_s += IDLE_S
        assert sessions.user(["one"], now_s) == "alice"
    assert sessions.user(["one"], LONGEST_S + 1) is None
    sessions.begin("two", "alice", 0.0)
    assert sessions.user(["two"], IDLE_S + 1) is None
    assert sessions.users() == {"alice"}
    sessions.expire(LONGEST_S + 1)
    assert sessions.users() == frozenset()


def test_there_are_only_so_many() -> None:
    sessions: Sessions[str] = Sessions()
    for number in range(MOST_OF_A_USER + 2):
        sessions.begin(f"c{number}", "alice", float(number))
    known = [number for number in range(MOST_OF_A_USER + 2) if sessions.user([f"c{number}"], 10.0)]
    assert known == list(range(2, MOST_OF_A_USER + 2)), "the oldest went"
    for number in range(MOST_USERS - 1):
        assert sessions.may_begin(f"u{number}")
        sessions.begin(f"u{number}", f"u{number}", 10.0)
    assert sessions.may_begin("alice") and not sessions.may_begin("one more")
