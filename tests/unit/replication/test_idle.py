"""What a follower of idle partitions does: the same for five as for five hundred (KIP-227)."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.model.types import TopicPartition
from tests.unit.replication.conftest import Cluster

FETCH_ROUND_MS = 500


def calls(work: Callable[[], None]) -> int:
    """How many functions are called, of Python and of C."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def idle(path: Path, partitions: int) -> Cluster:
    """Broker 2 follows broker 1 in so many partitions; everything is in sync and at rest."""
    cluster = Cluster(path, 2)
    for number in range(partitions):
        cluster.create(1, 2, tp=TopicPartition("t", number), settle=False)
    cluster.settle()
    cluster.wait(2 * FETCH_ROUND_MS, step_ms=50)
    return cluster


def test_an_idle_round_asks_and_answers_nothing(tmp_path: Path) -> None:
    cluster = idle(tmp_path, 500)
    [fetcher] = cluster[2].replicas.fetchers.values()
    [link] = cluster.links.values()
    assert len(list(fetcher.partitions)) == 500
    seen: list[tuple[int, int]] = []
    serve, answer = link.serve, link.answer

    def spied_serve() -> bool:
        seen.extend((len(plan.partitions), len(plan.forgotten)) for plan in link.requests)
        return bool(serve())

    def spied_answer() -> bool:
        seen.extend((len(partitions), 0) for _, partitions in link.answers)
        return bool(answer())

    link.serve, link.answer = spied_serve, spied_answer  # type: ignore[method-assign]
    cluster.wait(4 * FETCH_ROUND_MS, step_ms=50)
    assert len(seen) >= 6
    assert set(seen) == {(0, 0)}


def test_the_work_of_an_idle_round_does_not_grow_with_the_partitions(tmp_path: Path) -> None:
    few, many = idle(tmp_path / "few", 5), idle(tmp_path / "many", 500)
    counts = [calls(lambda c=each: c.wait(2 * FETCH_ROUND_MS, step_ms=50)) for each in (few, many)]  # type: ignore[misc]
    assert counts[0] == counts[1]
