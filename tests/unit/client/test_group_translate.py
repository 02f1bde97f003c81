from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.group_translate import (
    assign_ranges,
    assignment_of,
    encode_assignment,
    encode_subscription,
)
from holdfast.groups.consumer_protocol import subscribed_topics
from holdfast.model.types import TopicPartition

partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=10), st.integers(0, 1000))


@given(st.sets(partitions))
def test_an_assignment_comes_back(tps: set[TopicPartition]) -> None:
    assert assignment_of(encode_assignment(tps)) == tuple(sorted(tps))


@given(st.binary(max_size=60))
def test_any_bytes_are_an_assignment_or_none(data: bytes) -> None:
    assert isinstance(assignment_of(data), tuple)


def test_a_subscription_is_what_coordinators_read() -> None:
    assert subscribed_topics(encode_subscription(["a", "bb"])) == {"a", "bb"}


def test_ranges_give_the_first_members_one_more() -> None:
    plan = assign_ranges({"m2": frozenset("ab"), "m1": frozenset("a"), "m3": frozenset("a")}, {"a": 5, "b": 2, "c": 9})
    assert plan["m1"] == (TopicPartition("a", 0), TopicPartition("a", 1))
    assert plan["m2"] == (
        TopicPartition("a", 2),
        TopicPartition("a", 3),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )
    assert plan["m3"] == (TopicPartition("a", 4),)


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.frozensets(st.sampled_from("abc")), max_size=6),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 20)),
)
def test_every_partition_that_somebody_wants_has_one_reader(
    members: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    plan = assign_ranges(members, counts)
    given_out = [tp for tps in plan.values() for tp in tps]
    wanted = frozenset().union(*members.values())
    assert sorted(given_out) == sorted(TopicPartition(t, p) for t, n in counts.items() if t in wanted for p in range(n))
    for member, tps in plan.items():
        assert {tp.topic for tp in tps} <= members[member]
