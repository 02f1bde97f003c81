"""Every route that there is: what --read-only, a Host and an Origin refuse; names are text on every page."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from holdfast.console.app import make_app
from holdfast.console.host import ConsoleHost
from tests.unit.console.asking import HOST, ORIGIN, ask, console, paths_of
from tests.unit.console.snapshots import disk, move, snapshot, topic

METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
"""Whatever is neither GET nor HEAD."""
NASTY = '<script>alert("x")</script>'
A, B = f"/disks/{NASTY}", "/disks/b"
NOW = snapshot(
    topics=[topic(NASTY, (1, (1, 2), (1, 2)), (None, (2,), ()))],
    disks={
        1: [disk(A, replicas=[(NASTY, 0)]), disk(B, state="offline", reason=NASTY, future=[(NASTY, 0)])],
        2: [disk(A, replicas=[(NASTY, 0), (NASTY, 1)])],
    },
    moves={1: [move((NASTY, 0), A, B)]},
    groups={NASTY: "Stable"},
)


def routes(host: ConsoleHost) -> list[str]:
    found = sorted(set(paths_of(list(make_app(host).routes))))
    pages = {"/", "/unlock", "/act/create-topic", "/acts/1", "/events", "/static/console.css"}
    assert ({"/metrics", "/health"} if host.settings.metrics_only else pages | {"/metrics"}) <= set(found)
    assert not any("{" in path for path in found), "an address that this test cannot make: say here what it is"
    return found


@pytest.mark.parametrize("metrics_only", [False, True])
def test_with_read_only_every_route_refuses_what_is_not_reading(metrics_only: bool) -> None:
    host = console(read_only=True, metrics_only=metrics_only)
    cookie = f"{host.rules.cookie_name}={host.rules.cookie_value}"
    for path in (*routes(host), *(f"/act/{name}" for name in host.acts), "/nowhere"):
        for method in METHODS:
            answer = ask(host, method, path, {"origin": ORIGIN, "cookie": cookie})
            assert (answer.status, answer.text) == (403, "this console is --read-only\n"), (method, path)


def test_every_route_refuses_another_host_and_acts_of_another_origin(tmp_path: Path) -> None:
    host = console(tmp_path)
    cookie = f"{host.rules.cookie_name}={host.rules.cookie_value}"
    for path in (*routes(host), *(f"/act/{name}" for name in host.acts)):
        for method in ("GET", "HEAD", *METHODS):
            for name in ("evil.example", "evil.example:8080", "127.0.0.1:80"):
                answer = ask(host, method, path, {"host": name, "origin": f"http://{name}", "cookie": cookie})
                assert (answer.status, "Host" in answer.text) == (403, True), (method, path)
        for method in METHODS:
            for origin in ("http://evil.example", "null", "http://localhost:8080", f"https://{HOST}"):
                answer = ask(host, method, path, {"origin": origin, "cookie": cookie})
                assert (answer.status, "Origin" in answer.text) == (403, True), (method, path)
            if path != "/unlock":
                answer = ask(host, method, path, {"origin": ORIGIN})
                assert (answer.status, "need the token" in answer.text) == (403, True), (method, path)
    assert list(tmp_path.iterdir()) == [], "nothing was done"


def test_an_act_is_no_get(tmp_path: Path) -> None:
    """Reading needs no token: so it must not change anything, whatever its address says."""
    host = console(tmp_path, now=NOW)
    for name in host.acts:
        answer = ask(host, "GET", f"/act/{name}", once="1", confirm=A, broker=1, path=A, topic=NASTY)
        assert answer.status == 200, name
        assert 'name="once"' not in answer.text, "no form to send without a plan"
    assert host.log.outcomes() == []


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/", {}),
        ("/disk", {"broker": "1", "path": A}),
        ("/disk", {"broker": "1", "path": B}),
        ("/topics", {"q": NASTY}),
        ("/topic", {"name": NASTY}),
        ("/partitions", {"q": "script"}),
        ("/groups", {}),
        ("/reassignments", {}),
        ("/act/move", {"broker": "1", "source": A, "target": B, "replicas": f"{NASTY}-0"}),
        ("/act/delete-topic", {"topic": NASTY, "plan": "1"}),
        ("/act/remove-directory", {"broker": "1", "path": A}),
        ("/topic", {"name": f"{NASTY}?"}),
        ("/disk", {"broker": "1", "path": f"{NASTY}?"}),
    ],
)
def test_a_topic_named_like_a_script_tag_is_text(path: str, query: dict[str, str], read_only: bool) -> None:
    """No broker lets one be made; a console does not count on that."""
    answer = ask(console(read_only=read_only, now=NOW), "GET", path, **query)
    assert answer.status in (200, 404)
    assert "<script>" not in answer.text
    assert escape(NASTY) in answer.text.replace("&#34;", "&quot;")
    assert not re.search(r"<script(?! src=\"/static/)|\sstyle=|\son\w+=", answer.text)


def test_what_only_holdfasts_brokers_do_is_not_offered_by_others(tmp_path: Path) -> None:
    kafka = replace(NOW, disks={broker: replace(told, is_kafka=True) for broker, told in NOW.disks.items()})
    ours = {"online", "offline", "cordon", "uncordon", "add-directory", "remove-directory"}
    host = console(tmp_path, now=NOW)
    assert {name for name, act in host.acts.items() if act.ours} == ours
    for path in ("/", "/acts", f"/disk?broker=1&path={B}"):
        shown = [offered(console(tmp_path, now=each), path) for each in (NOW, kafka)]
        assert shown[1] == shown[0] - ours, path
    assert offered(console(tmp_path, now=kafka), "/") == {"move"}
    mixed = replace(NOW, disks={**NOW.disks, 2: replace(NOW.disks[2], is_kafka=True)})
    assert ours <= offered(console(tmp_path, now=mixed), "/acts")
    form = ask(console(tmp_path, now=mixed), "GET", "/act/add-directory").text
    assert re.findall(r'<option value="(\d+)"', form) == ["1"]


def offered(host: ConsoleHost, path: str) -> set[str]:
    """The acts that a page links to."""
    path, _, query = path.partition("?")
    answer = ask(host, "GET", path, **dict(each.split("=") for each in query.split("&") if each))
    assert answer.status == 200, answer.text
    return set(re.findall(r'href="/act/([a-z-]+)', answer.text))


def test_a_directory_can_be_removed_where_it_holds_nothing_or_is_offline() -> None:
    now = snapshot(
        topics=[topic("t", (1, (1,), (1,)))],
        disks={1: [disk("/full", replicas=[("t", 0)]), disk("/empty"), disk("/dead", state="offline")]},
        alive=(1,),
    )
    text = ask(console(now=now), "GET", "/").text
    tiles = dict(re.findall(r'<article [^>]*data-path="([^"]*)">(.*?)</article>', text, re.DOTALL))
    acts = {path: set(re.findall(r'href="/act/([a-z-]+)', tile)) for path, tile in tiles.items()}
    assert acts == {
        "/full": {"move", "offline", "cordon"},
        "/empty": {"offline", "remove-directory", "cordon"},
        "/dead": {"online", "remove-directory", "cordon"},
    }
    assert "/act/add-directory?broker=1" in text
    assert "/act/" not in ask(console(read_only=True, now=now), "GET", "/").text
