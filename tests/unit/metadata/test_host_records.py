"""Which host has which id, as records: there and back, through bytes and snapshots, and unseen by who knows nothing."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from holdfast.controller import broadcast
from holdfast.metadata import host_records
from holdfast.metadata.broker_ids import Applicant, HostEntry, Step, Taken
from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    ResourceType,
    TopicRecord,
)
from holdfast.model.errors import MetadataError
from holdfast.model.listeners import Endpoints

TOPIC = UUID(int=9)
EMPTY = ClusterImage.empty("c")


def after(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """The image behind records that have been bytes."""
    return image.apply([decode_record(encode_record(record)) for record in records], image.next_offset)[0]


def test_K426_09_an_id_that_is_taken_is_kept_for_good() -> None:
    who = Applicant(host="h:1", claimant=UUID(int=5), address="127.0.0.1:1")
    image = after(EMPTY, host_records.taken(EMPTY, who, Taken(broker_id=1001, step=Step.NEW, sequence=1)))
    kept = HostEntry(broker_id=1001, claimant=UUID(int=5), address="127.0.0.1:1")
    assert host_records.hosts(image) == {"h:1": kept}
    assert (host_records.host(image, "h:1"), host_records.host(image, "x")) == (kept, None)
    assert host_records.sequence(image) == 1
    again = after(EMPTY, image.to_records())
    assert host_records.hosts(again) == {"h:1": kept}
    assert host_records.sequence(again) == 1


def test_once_a_broker_lives_its_id_is_awaited_no_more() -> None:
    claimed = after(EMPTY, host_records.put(EMPTY, "h", HostEntry(broker_id=3, claimant=UUID(int=5), address="a:1")))
    lives = after(claimed, host_records.seen_alive(claimed, 3))
    assert host_records.hosts(lives) == {"h": HostEntry(broker_id=3)}
    assert list(host_records.seen_alive(lives, 3)) == []
    assert list(host_records.seen_alive(claimed, 4)) == []


def test_what_is_so_already_needs_no_record() -> None:
    image = after(EMPTY, host_records.put(EMPTY, "h", HostEntry(broker_id=3)))
    assert list(host_records.put(image, "h", HostEntry(broker_id=3))) == []
    assert list(host_records.registered(image, "h", 3)) == []
    assert list(host_records.forget(image, "x")) == []
    assert host_records.hosts(after(image, host_records.forget(image, "h"))) == {}


def test_K426_12_a_registration_under_another_name_takes_the_old_one_away() -> None:
    image = after(EMPTY, host_records.put(EMPTY, "old", HostEntry(broker_id=3)))
    image = after(image, host_records.put(image, "other", HostEntry(broker_id=4)))
    image = after(image, host_records.registered(image, "new", 3))
    assert host_records.hosts(image) == {"new": HostEntry(broker_id=3), "other": HostEntry(broker_id=4)}


def test_K426_14_who_knows_nothing_of_hosts_keeps_them_and_tells_nobody() -> None:
    """They are records that every version reads: configurations of a resource that none of them looks for."""
    records = [*host_records.put(EMPTY, "h", HostEntry(broker_id=3))]
    assert [type(record) for record in records] == [ConfigRecord]
    assert encode_record(records[0]) == b"\x01\x04\x00\x64\x02h\x0abroker.id\x023\x00"
    registered = RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=1), broker_epoch=0, endpoints=Endpoints.one("h", 1).listeners
    )
    before = after(EMPTY, [registered])
    image, delta = before.apply(records, before.next_offset)
    told = broadcast.plan(image, delta, offline={})[1]
    assert (told.roles, told.stop) == ([], [])
    assert told.metadata == broadcast.Metadata()


def test_K426_11_ids_with_partitions_are_found_in_the_image() -> None:
    image = after(
        EMPTY,
        [
            TopicRecord(name="t", topic_id=TOPIC),
            *(
                PartitionRecord(partition=n, topic_id=TOPIC, replicas=replicas, isr=replicas, leader=replicas[0])
                for n, replicas in enumerate([(1, 2), (2, 1003)])
            ),
        ],
    )
    known = host_records.known(image, frozenset({1}))
    assert set(known.used()) == {1, 2, 1003}
    assert [n for n in (1, 2, 3, 1003) if known.is_known(n)] == [1, 2, 1003]


def test_a_host_that_makes_no_sense_is_told() -> None:
    image = after(EMPTY, [ConfigRecord(resource_type=ResourceType.HOST, resource_name="h", name="x", value="y")])
    with pytest.raises(MetadataError, match=r"Host h has \{'x': 'y'\}: expected the number of a broker"):
        host_records.hosts(image)
