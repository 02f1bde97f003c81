"""C-2: limits of replication on either side (KIP-73): how even, for whom, and that nobody else pays."""

from typing import Any

from holdfast.model.config_key import LONG_MAX
from holdfast.model.types import TopicPartition
from holdfast.replication.throttle import ByteRate, ThrottleSide, throttled_partitions

TP = TopicPartition("t", 0)
OTHER = TopicPartition("u", 0)
RECORD = b"x" * 10_000
RECORDS = 50
RATE = 100_000
TOTAL = RECORDS * len(RECORD)
ALL = {"t": None}


def fill(cluster: Any, tp: TopicPartition = TP, records: int = RECORDS) -> None:
    for _ in range(records):
        cluster[1].produce(RECORD, acks=1, tp=tp)


def behind(cluster: Any) -> None:
    """Broker 2 comes back empty-handed for what was written while nothing moved; it is not in the ISR."""
    cluster.create(1, 2, isr=(1,), settle=False)
    fill(cluster)


def has_all(cluster: Any, tp: TopicPartition = TP) -> bool:
    return bool(cluster[2].log(tp).view.end_offset == cluster[1].log(tp).view.end_offset)


def seconds_until(cluster: Any, condition: Any, limit_s: float = 60) -> float:
    began = cluster.now_ms
    while not condition():
        assert cluster.now_ms - began < limit_s * 1000, "it took too long"
        cluster.settle()
        cluster.now_ms += 10
        for node in cluster.nodes.values():
            node.replicas.tick(cluster.now_ms)
    return float(cluster.now_ms - began) / 1000


def throttle(cluster: Any, broker: int, side: ThrottleSide, rate: int = RATE, topics: Any = None) -> None:
    cluster[broker].replicas.throttle(side, rate, ALL if topics is None else topics, cluster.now_ms)


def test_C_2_a_rate_is_kept_on_the_average_whatever_the_pieces() -> None:
    for piece in (1_000, 100_000, 1_000_000):
        rate, now_ms, taken = ByteRate(1_000_000), 5, 0
        while taken < 20_000_000:
            while wait_ms := rate.wait_ms(now_ms):
                now_ms += wait_ms
            rate.spent(piece, now_ms)
            taken += piece
        assert 18_500 <= now_ms <= 20_500, piece


def test_C_2_a_rate_that_changes_holds_at_once_and_idle_time_is_no_reserve() -> None:
    rate = ByteRate(1_000)
    rate.spent(10_000, 0)
    assert rate.wait_ms(0) == rate.wait_ms(8_990) == 1_000
    assert rate.wait_ms(9_900) <= 110
    rate.spent(9_900, 9_900)
    rate.set(100_000, 9_900)
    assert rate.wait_ms(9_900) <= 110
    rate.set(LONG_MAX, 11_000)
    assert rate.wait_ms(11_000) == 0
    rate.set(1_000, 12_000)
    rate.spent(1_000, 3_600_000)
    assert rate.wait_ms(3_600_000) >= 800
    assert ByteRate(0).wait_ms(0) > 0


def test_C_2_the_lists_name_partitions_of_this_broker() -> None:
    assert throttled_partitions(["0:1", "1:2", "5:1"], 1) == {0, 5}
    assert throttled_partitions(["*"], 7) is None
    assert throttled_partitions(["0:1"], 3) == frozenset()


def test_C_2_the_leader_limits_what_it_sends_to_a_follower_out_of_sync(cluster: Any) -> None:
    behind(cluster)
    throttle(cluster, 1, ThrottleSide.LEADER)
    took = seconds_until(cluster, lambda: has_all(cluster))
    assert 0.9 * TOTAL / RATE <= took <= 1.3 * TOTAL / RATE


def test_C_2_the_follower_limits_what_it_fetches(cluster: Any) -> None:
    behind(cluster)
    throttle(cluster, 2, ThrottleSide.FOLLOWER)
    took = seconds_until(cluster, lambda: has_all(cluster))
    assert 0.9 * TOTAL / RATE <= took <= 1.3 * TOTAL / RATE


def test_C_2_both_sides_together_are_not_slower(cluster: Any) -> None:
    behind(cluster)
    throttle(cluster, 1, ThrottleSide.LEADER)
    throttle(cluster, 2, ThrottleSide.FOLLOWER)
    took = seconds_until(cluster, lambda: has_all(cluster))
    assert 0.9 * TOTAL / RATE <= took <= 1.5 * TOTAL / RATE


def test_C_2_who_is_in_sync_is_not_limited(cluster: Any) -> None:
    cluster.create(1, 2)
    throttle(cluster, 1, ThrottleSide.LEADER, 1)
    throttle(cluster, 2, ThrottleSide.FOLLOWER, 1)
    results = cluster[1].produce(RECORD, acks=-1)
    cluster.settle()
    assert [r.error for r in results] == [None]
    fill(cluster)
    cluster.settle()
    assert has_all(cluster)


def test_C_2_a_partition_that_is_not_named_passes_by_one_that_is_held_back(cluster: Any) -> None:
    behind(cluster)
    cluster.create(1, 2, tp=OTHER, isr=(1,), settle=False)
    fill(cluster, OTHER)
    throttle(cluster, 1, ThrottleSide.LEADER)
    throttle(cluster, 2, ThrottleSide.FOLLOWER)
    assert seconds_until(cluster, lambda: has_all(cluster, OTHER)) < 0.5
    assert not has_all(cluster)
    assert seconds_until(cluster, lambda: has_all(cluster)) >= 0.8 * TOTAL / RATE


def test_C_2_several_that_are_held_back_take_turns(cluster: Any) -> None:
    behind(cluster)
    cluster.create(1, 2, tp=OTHER, isr=(1,), settle=False)
    fill(cluster, OTHER)
    throttle(cluster, 1, ThrottleSide.LEADER, topics={"t": None, "u": {0}})
    seconds_until(cluster, lambda: cluster[2].log(OTHER).view.end_offset >= RECORDS // 2)
    assert abs(cluster[2].log(TP).view.end_offset - RECORDS // 2) <= 3
    took = seconds_until(cluster, lambda: has_all(cluster) and has_all(cluster, OTHER))
    assert took >= 0.8 * TOTAL / RATE


def test_C_2_the_end_of_a_throttle_is_the_end_of_the_wait(cluster: Any) -> None:
    behind(cluster)
    throttle(cluster, 1, ThrottleSide.LEADER, 1)
    throttle(cluster, 2, ThrottleSide.FOLLOWER, 1)
    cluster.settle()
    cluster.settle()
    assert not has_all(cluster)
    throttle(cluster, 1, ThrottleSide.LEADER, LONG_MAX, {})
    throttle(cluster, 2, ThrottleSide.FOLLOWER, LONG_MAX, {})
    assert seconds_until(cluster, lambda: has_all(cluster)) < 2
