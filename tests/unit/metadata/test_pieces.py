"""Commits cut into pieces: what stays together, and how much goes into one."""

from uuid import UUID

from holdfast.metadata.pieces import atoms, pieces
from holdfast.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

T, U = UUID(int=1), UUID(int=2)


def partition(topic: UUID, number: int) -> PartitionRecord:
    return PartitionRecord(partition=number, topic_id=topic, replicas=(1,), isr=(1,), leader=1)


def config(kind: int, name: str, key: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value="1")


NEW = (TopicRecord(name="t", topic_id=T), config(2, "t", "a"), config(2, "t", "b"), partition(T, 0), partition(T, 1))
BESIDE = (TopicRecord(name="u", topic_id=U), partition(U, 0))
GROWN = (partition(T, 2), partition(T, 3))
CONFIGURED = (config(4, "", "a"), config(4, "", "b"))
OTHER = (config(4, "1", "a"),)
CHANGES = tuple(PartitionChangeRecord(partition=n, topic_id=T, leader=None) for n in (0, 1))
RECORDS: tuple[MetadataRecord, ...] = (
    *NEW,
    *BESIDE,
    *GROWN,
    *CONFIGURED,
    *OTHER,
    *CHANGES,
    RemoveTopicRecord(topic_id=U),
)


def test_what_makes_one_thing_stays_together() -> None:
    expected = [NEW, BESIDE, GROWN, CONFIGURED, OTHER, CHANGES[:1], CHANGES[1:], RECORDS[-1:]]
    assert [tuple(atom) for atom in atoms(RECORDS)] == expected
    assert list(atoms(())) == []


def test_a_topic_that_is_made_again_is_another_thing() -> None:
    again = (*NEW, RemoveTopicRecord(topic_id=T), TopicRecord(name="t", topic_id=U), config(2, "t", "a"))
    assert [len(atom) for atom in atoms(again)] == [5, 1, 2]


def test_pieces_are_full_and_never_too_heavy_but_for_one_thing() -> None:
    assert [len(piece) for piece in pieces(RECORDS, 4)] == [5, 4, 4, 2]
    assert [len(piece) for piece in pieces(RECORDS, 1)] == [5, 2, 2, 2, 1, 1, 1, 1]
    assert list(pieces(RECORDS, 100)) == [list(RECORDS)]
    assert [record for piece in pieces(RECORDS, 3) for record in piece] == list(RECORDS)
    assert list(pieces((), 5)) == []


def test_pieces_go_by_weight() -> None:
    """In bytes, for one."""
    records = [FeatureLevelRecord(name=name, level=1) for name in ("aaa", "b", "cc", "dddd", "e")]

    def weight(record: MetadataRecord) -> int:
        assert isinstance(record, FeatureLevelRecord)
        return len(record.name)

    assert [[r.name for r in piece if isinstance(r, FeatureLevelRecord)] for piece in pieces(records, 4, weight)] == [
        ["aaa", "b"], ["cc"], ["dddd"], ["e"],
    ]  # fmt: skip
