"""Offsets in Spark's form, limits, and how ranges become tasks."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.types import TopicPartition
from holdfast.spark.ranges import RECORDS_PER_TASK, WORTH_A_TASK, Range, from_json, limited, tasks_of, to_json

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
counts = st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 50), st.integers(0, 200)), min_size=1)


def test_json_is_that_of_sparks_source() -> None:
    positions = {C: 4, B: 3, A: 2}
    assert to_json(positions) == {"a": {"0": 2, "1": 3}, "b": {"0": 4}}
    assert from_json(to_json(positions)) == positions


@given(counts, st.integers(1, 300))
def test_a_limit_is_used_up_and_not_exceeded_and_starves_nobody(
    given_counts: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {tp: first for tp, (first, _) in given_counts.items()}
    latest = {tp: first + count for tp, (first, count) in given_counts.items()}
    end = limited(start, latest, limit)
    taken = {tp: end[tp] - start[tp] for tp in end}
    waiting = {tp: latest[tp] - start[tp] for tp in latest if latest[tp] > start[tp]}
    assert all(0 <= taken[tp] <= latest[tp] - start[tp] for tp in taken)
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    if limit >= len(waiting):
        assert all(taken[tp] for tp in waiting)


def ranges(sizes: list[int]) -> list[Range]:
    return [Range(tp=TopicPartition("t", i), start=7, end=7 + size) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 100_000), max_size=8), st.integers(1, 4), st.none() | st.integers(1, 20))
def test_tasks_cover_every_range_once(sizes: list[int], parallelism: int, wanted: int | None) -> None:
    given_ranges = ranges(sizes)
    tasks = tasks_of(given_ranges, parallelism=parallelism, min_partitions=wanted)
    pieces = sorted((piece.tp, piece.start, piece.end) for task in tasks for piece in task)
    for each in given_ranges:
        mine = [(start, end) for tp, start, end in pieces if tp == each.tp]
        at = each.start
        for start, end in mine:
            assert start == at < end
            at = end
        assert at == each.end
    total = sum(sizes)
    worth = sum(size >= WORTH_A_TASK for size in sizes)
    assert worth <= len(tasks) <= max(parallelism, wanted or 0, worth)
    assert len(tasks) >= min(wanted or 0, total)
    if tasks:
        loads = [sum(piece.size for piece in task) for task in tasks]
        assert max(loads) - min(loads) <= 1 or len(tasks) == 1


def test_few_records_are_one_task_and_many_are_split() -> None:
    assert len(tasks_of(ranges([5, 5, 5]), parallelism=8)) == 1
    assert len(tasks_of(ranges([WORTH_A_TASK * 2] * 2), parallelism=8)) == 4
    assert len(tasks_of(ranges([RECORDS_PER_TASK * 3]), parallelism=2)) == 3
    assert len(tasks_of(ranges([1000]), parallelism=1, max_records=300)) == 4
    assert tasks_of(ranges([0, 0]), parallelism=2, min_partitions=4) == []


@given(
    st.lists(st.integers(0, 100_000), max_size=8),
    st.integers(1, 4),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 60_000),
)
def test_spark_D10_ordered_ranges_are_never_cut(
    sizes: list[int], parallelism: int, wanted: int | None, most: int | None
) -> None:
    given_ranges = [each for each in ranges(sizes) if each.size]
    tasks = tasks_of(given_ranges, parallelism=parallelism, min_partitions=wanted, max_records=most, ordered=True)
    assert sorted((each for task in tasks for each in task), key=lambda each: each.tp) == given_ranges
    assert all(tasks)
    assert len(tasks) >= min(len(given_ranges), max(wanted or 0, sum(size >= WORTH_A_TASK for size in sizes)))
    for task in tasks:
        assert len(task) == 1 or sum(each.size for each in task) <= (most or RECORDS_PER_TASK)


def test_spark_D10_two_partitions_are_two_tasks_where_order_matters() -> None:
    (first, second) = tasks_of(ranges([30_000, 10_000]), parallelism=2, ordered=True)
    assert [(each.tp.partition, each.start, each.end) for each in (*first, *second)] == [
        (0, 7, 30_007),
        (1, 7, 10_007),
    ]
    cut = tasks_of(ranges([30_000, 10_000]), parallelism=2)
    assert [each.tp.partition for task in cut for each in task] == [0, 0, 1]


def test_spark_D21_each_partition_that_is_worth_a_task_may_have_one() -> None:
    assert len(tasks_of(ranges([WORTH_A_TASK] * 200), parallelism=2)) == 200
    assert len(tasks_of(ranges([WORTH_A_TASK] * 200), parallelism=2, ordered=True)) == 200
    assert len(tasks_of(ranges([10] * 5000), parallelism=2)) == 2
