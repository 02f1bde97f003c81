"""Long answers are kept, and say at any time what they would if they were made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.access import Access
from holdfast.broker.entity import build
from holdfast.broker.handlers import metadata
from holdfast.broker.handlers.base import RequestContext
from holdfast.broker.kept_answers import KeptAnswers
from holdfast.broker.metadata_cache import MetadataCache
from holdfast.broker.session import Session
from holdfast.protocol.apis import SPOKEN, ApiKey, request_type
from holdfast.protocol.framing import decode_response, parse_response_header
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, ResourceKind
from tests.unit.broker.test_metadata_cache import SECOND, partition, topic, update

MANY = metadata.KEPT_FROM
THIRD = UUID(int=3)
NEWEST = max(SPOKEN[ApiKey.METADATA])


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> MetadataCache:
    monkeypatch.setattr(metadata, "ELECTION_WAIT_S", 0.0)
    cache = MetadataCache()
    many = (partition(index, 1 + index % 3) for index in range(MANY))
    update(cache, topic("many", *many), topic("few", partition(0, 1), topic_id=SECOND), cluster_id="c")
    return cache


class MayDescribe:
    """An authorizer: everybody may describe these topics, and do nothing else."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def may(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return (operation, kind) == (Operation.DESCRIBE, ResourceKind.TOPIC) and name in self._names

    def may_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return (operation, kind) == (Operation.DESCRIBE, ResourceKind.TOPIC) and bool(self._names)


def ask(
    cache: MetadataCache, version: int, *names: str, listener: str = "PLAINTEXT", limited: bool = False,
    may: frozenset[str] | None = None, **more: Any,
) -> Any:  # fmt: skip
    """The answer as it is; without names: of all topics. ``may``: these may be described, and no others."""
    wanted = [{"name": name} for name in names] if names or version == 0 else None
    request = build(request_type(ApiKey.METADATA, version), {"topics": wanted} | more)
    broker = SimpleNamespace(
        metadata=cache, cluster_id="c", access=Access(None if may is None else MayDescribe(may)),
        quota_view=SimpleNamespace(limits_clients=limited),
        config=SimpleNamespace(bool=lambda key: False),
    )  # fmt: skip
    connection = SimpleNamespace(listener=SimpleNamespace(name=listener), session=Session(), peer=("127.0.0.1", 1))
    ctx = RequestContext(
        broker=broker, connection=connection, api_key=int(ApiKey.METADATA), version=version, correlation_id=7,
        client_id="c", body=b"",
    )  # type: ignore[arg-type]  # fmt: skip
    return asyncio.run(metadata.handle_metadata(ctx, request))


def decoded(answer: bytes, version: int) -> Any:
    frame = memoryview(answer)[4:]
    correlation_id, begin = parse_response_header(int(ApiKey.METADATA), version, frame)
    assert correlation_id == 7 and len(frame) == int.from_bytes(answer[:4])
    return decode_response(int(ApiKey.METADATA), version, frame[begin:])


def said(cache: MetadataCache, version: int, *names: str, **more: Any) -> Any:
    """The answer, which is a kept one and equal to one that is made anew."""
    kept = decoded(ask(cache, version, *names, **more), version)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metadata, "KEPT_FROM", 1 << 30)
        assert kept == ask(cache, version, *names, **more)
    return kept


@pytest.mark.parametrize("version", SPOKEN[ApiKey.METADATA])
def test_in_every_version_it_says_what_a_new_one_would(cache: MetadataCache, version: int) -> None:
    for number, names in enumerate(((), ("many",), ("many", "few"))):
        assert said(cache, version, *names) == said(cache, version, *names)
        assert len(cache.answers) == number + 1, "the second is the first"


CHANGES: dict[str, Callable[[MetadataCache], Any]] = {
    "a leader": lambda cache: update(cache, topic("many", partition(5, 1))),
    "a topic": lambda cache: update(cache, topic("few", topic_id=SECOND), topic("other", partition(0, 1))),
    "a broker that died": lambda cache: update(cache, brokers=(1, 2)),
    "a suspicion": lambda cache: cache.suspects.add(2),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_told_at_once(cache: MetadataCache, what: str) -> None:
    before = said(cache, NEWEST)
    CHANGES[what](cache)
    after = said(cache, NEWEST)
    assert after != before
    cache.suspects.clear()
    cache.departed.clear()
    assert (said(cache, NEWEST) != after) == (what in ("a broker that died", "a suspicion"))


def test_everybody_is_told_what_they_may_describe(cache: MetadataCache) -> None:
    update(cache, topic("also", *(partition(index, 1) for index in range(MANY)), topic_id=THIRD))
    every = {"also", "few", "many"}
    for may in (every, {"many"}, {"also", "few"}, every, {"many", "few"}, {"many"}):
        assert {each.name for each in said(cache, NEWEST, may=frozenset(may)).topics} == may
    for may in ({"many"}, every, {"also"}):
        answer = ask(cache, NEWEST, "many", may=frozenset(may))
        told = decoded(answer, NEWEST) if isinstance(answer, bytes) else answer
        assert [bool(each.partitions) for each in told.topics] == ["many" in may]


def test_by_another_listener_it_is_another_answer(cache: MetadataCache) -> None:
    assert said(cache, NEWEST).brokers
    assert not said(cache, NEWEST, listener="OTHER").brokers


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (("few",), {}),
        (("many", "missing"), {}),
        (("many",), {"include_topic_authorized_operations": True}),
        (("many",), {"limited": True}),
    ],
)
def test_a_short_one_and_one_that_says_more_are_made_anew(
    cache: MetadataCache, names: tuple[str, ...], more: dict[str, Any]
) -> None:
    assert not isinstance(ask(cache, NEWEST, *names, **more), bytes)
    assert len(cache.answers) == 0


def test_those_that_were_asked_for_the_longest_ago_go() -> None:
    answers = KeptAnswers(most_bytes=100)
    for key in range(4):
        assert answers.get("now", key) is None
        answers.keep(key, bytes(30))
        answers.get("now", 1)
    assert [answers.get("now", key) is not None for key in range(4)] == [False, True, True, True]
    assert answers.get("now", 9) is None
    answers.keep(9, bytes(101))
    assert len(answers) == 0 and answers.get("now", 9) is None
    answers.keep(9, bytes(100))
    assert answers.get("later", 9) is None and len(answers) == 0
    answers.keep(9, bytes(100))
    assert answers.get("later", 9) == bytes(100)
