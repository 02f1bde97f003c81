"""What a broker that is starting, or standing still, says of itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from holdfast.broker.health import live, ready
from holdfast.broker.metrics_server import _takes_gzip


def host(**parts: Any) -> Any:
    return SimpleNamespace(stopping=asyncio.Event(), **parts)


def reasons(broker: Any) -> list[str]:
    is_ready, told = ready(broker)
    assert is_ready == (not told["reasons"]) == told["ok"]
    return [each["reason"] for each in told["reasons"]]


def test_each_stage_of_a_start_is_told() -> None:
    loading = SimpleNamespace(loading=[SimpleNamespace(path="/d1"), SimpleNamespace(path="/d2")])
    assert reasons(host()) == ["start"]
    recovers = host(logs=loading)
    assert reasons(recovers) == ["recovery"]
    assert "/d1, /d2" in ready(recovers)[1]["reasons"][0]["text"]
    member = SimpleNamespace(unfenced=asyncio.Event())
    gate = SimpleNamespace(is_open=False)
    starts = host(logs=loading, membership=member, admission=gate)
    assert reasons(starts) == ["registration", "metadata"]
    member.unfenced.set()
    assert reasons(starts) == ["metadata"]
    gate.is_open = True
    assert reasons(starts) == []
    member.unfenced.clear()
    assert reasons(starts) == ["registration"]
    starts.stopping.set()
    assert reasons(starts) == ["stopping"]


def test_a_loop_that_stood_still_does_not_live() -> None:
    assert live(4.9) == (True, {"ok": True, "reasons": []})
    is_live, told = live(7.25)
    assert not is_live
    assert told["reasons"][0]["text"] == "the event loop has not turned for 7.2 s"


def test_who_takes_gzip() -> None:
    head = "GET /metrics HTTP/1.1\r\nHost: x\r\n{}\r\n\r\n"
    for line, takes in {
        "Accept-Encoding: gzip": True,
        "accept-encoding: deflate, GZIP ;q=0.8": True,
        "Accept-Encoding: *": True,
        "Accept-Encoding: gzip;q=0": False,
        "Accept-Encoding: identity": False,
        "X-Accept-Encoding: gzip": False,
    }.items():
        assert _takes_gzip(head.format(line).encode()) is takes, line
