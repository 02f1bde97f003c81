"""Cordoned log directories at the controller (KIP-1066): what it is told, what it remembers, what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.controller import events
from holdfast.controller.controller import Controller
from holdfast.metadata import records as rec
from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.image import ClusterImage
from holdfast.model.errors import HoldfastError
from holdfast.model.features import REGISTERED
from holdfast.model.listeners import Endpoint, Endpoints
from holdfast.protocol.error_codes import code_of
from tests.unit.controller.test_elections import Cluster

RECORDED = json.loads((Path(__file__).parents[2] / "golden/cli/4.3.0/cordon.json").read_text())


def d(broker: int, number: int) -> UUID:
    """The id of a broker's directory."""
    return UUID(int=broker * 100 + number)


class Cordoned(Cluster):
    """Brokers with two directories each."""

    def __init__(self, brokers: int = 3, **settings: Any) -> None:
        self.epochs: dict[int, int] = {}
        self.incarnation = 0
        super().__init__(brokers, **settings)

    def start(self, broker: int) -> None:
        self.register(broker)
        self.beat(broker)

    def register(self, broker: int, cordoned: tuple[UUID, ...] | None = ()) -> None:
        self.incarnation += 1
        reply = self.ask(
            events.BrokerRegister(
                broker_id=broker, incarnation_id=UUID(int=self.incarnation), endpoints=Endpoints.one(f"h{broker}", 9),
                log_dirs=(d(broker, 0), d(broker, 1)), cordoned=cordoned,
            )
        )  # fmt: skip
        self.epochs[broker] = reply.broker_epoch

    def beat(self, broker: int, **more: Any) -> None:
        self.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=self.epochs[broker], **more))

    def cordon(self, broker: int, *numbers: int) -> None:
        self.beat(broker, cordoned=tuple(d(broker, n) for n in numbers))

    def make(self, name: str, factor: int, partitions: int = 1) -> HoldfastError | None:
        new = events.TopicToCreate(name=name, partitions=partitions, replication_factor=factor)
        error: HoldfastError | None = self.ask(events.CreateTopics(topics=(new,))).topics[0].error
        return error

    def configure(self, broker: int, value: str | None) -> None:
        change = events.ConfigChange(
            resource_type=4, resource_name=str(broker), values=(("cordoned.log.dirs", value),), replace_all=False
        )
        self.ask(events.AlterConfigs(changes=(change,)))

    def used(self, name: str) -> set[int]:
        """The brokers that have a replica of the topic."""
        return {r for _, p in self.image.topics[name].numbered() for r in p.replicas}

    def succeeded(self) -> None:
        """Another controller takes over: it has the records and nothing else."""
        through = [decode_record(encode_record(record)) for record in self.image.to_records()]
        image, _ = ClusterImage.empty("c").apply(through, 0)
        self.controller = Controller(image, self.settings, random.Random(7))
        self.controller.begin(self.now_ms)


def recorded(name: str) -> Any:
    """Kafka's answer."""
    return next(each["response"] for each in RECORDED if each.get("name") == name)


def test_K1066_05_a_broker_with_all_its_directories_cordoned_gets_nothing_new() -> None:
    cluster = Cordoned()
    cluster.cordon(1, 0)
    assert cluster.make("one", 3) is None, "a directory is left"
    cluster.cordon(1, 0, 1)
    assert cluster.make("two", 2, 12) is None
    assert cluster.used("two") == {2, 3}
    cluster.cordon(1)
    assert cluster.make("three", 3) is None


def test_K1066_06_too_few_brokers_are_38_in_kafkas_words() -> None:
    cluster = Cordoned()
    assert cluster.make("t1", 3) is None
    cluster.cordon(1, 0, 1)
    error = cluster.make("x", 3)
    kafkas = recorded("RF 3 with broker 1 fully cordoned")["topics"][0]
    assert (code_of(error), str(error)) == (38, kafkas["error_message"])
    assert cluster.make("y", 2) is None
    reply = cluster.ask(events.CreatePartitions(topics=(events.MorePartitions(name="t1", count=9),)))
    kafkas = recorded("CreatePartitions of an RF 3 topic, auto")["results"][0]
    assert (code_of(reply.topics[0].error), str(reply.topics[0].error)) == (38, kafkas["error_message"])
    for broker in (2, 3):
        cluster.cordon(broker, 0, 1)
    error = cluster.make("z", 1)
    kafkas = recorded("RF 1 with every broker cordoned")["topics"][0]
    assert (code_of(error), str(error)) == (38, kafkas["error_message"])


def test_C28_K1066_07_an_explicit_assignment_to_a_cordoned_broker_is_39_and_says_why() -> None:
    cluster = Cordoned()
    assert cluster.make("t", 2) is None
    cluster.cordon(1, 0, 1)
    new = events.TopicToCreate(name="x", assignments=((0, (1, 2)),))
    error = cluster.ask(events.CreateTopics(topics=(new,))).topics[0].error
    assert code_of(error) == 39
    assert "Broker 1 " in str(error)
    assert "all its log directories are cordoned" in str(error)
    more = events.MorePartitions(name="t", count=2, assignments=((1, 2),))
    error = cluster.ask(events.CreatePartitions(topics=(more,))).topics[0].error
    assert (code_of(error), "cordoned" in str(error)) == (39, True)
    assert not cluster.records


def test_C2_K1066_08_a_reassignment_to_a_cordoned_broker_is_107_and_says_why() -> None:
    cluster = Cordoned()
    cluster.create("t", (2, 3))
    cluster.cordon(1, 0, 1)
    wanted = events.Reassignment(topic="t", partition=0, replicas=(1, 2))
    error = cluster.ask(events.AlterReassignments(partitions=(wanted,))).partitions[0].error
    assert (code_of(error), "all its log directories are cordoned" in str(error)) == (107, True)
    away = events.Reassignment(topic="t", partition=0, replicas=(3,))
    assert cluster.ask(events.AlterReassignments(partitions=(away,))).partitions[0].error is None


def test_K1066_05_what_is_left_beside_the_cordon_must_live() -> None:
    cluster = Cordoned()
    cluster.beat(1, cordoned=(d(1, 0),), offline_dirs=(d(1, 1),))
    assert code_of(cluster.make("x", 3)) == 38
    new = events.TopicToCreate(name="x", assignments=((0, (1, 2)),))
    error = cluster.ask(events.CreateTopics(topics=(new,))).topics[0].error
    assert "cordoned or offline" in str(error)
    cluster.beat(1, cordoned=(d(1, 0),))
    assert cluster.make("x", 3) is None


def test_K1066_11_registration_and_every_heartbeat_tell_it() -> None:
    cluster = Cordoned()
    cluster.register(1, cordoned=(d(1, 1),))
    assert cluster.records[-1] == rec.RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=cluster.incarnation), broker_epoch=cluster.epochs[1],
        endpoints=(Endpoint(name="PLAINTEXT", host="h1", port=9),), fenced=True, log_dirs=(d(1, 0), d(1, 1)),
        cordoned=(d(1, 1),), features=REGISTERED,
    )  # fmt: skip
    cluster.beat(1, cordoned=(d(1, 1),))
    assert all(getattr(r, "cordoned", None) is None for r in cluster.records), "nothing is new"
    cluster.beat(1, cordoned=(d(1, 1), d(1, 0)))
    (change,) = cluster.records
    assert change == rec.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=cluster.epochs[1], cordoned=(d(1, 0), d(1, 1))
    )
    cluster.beat(1)
    assert cluster.records == [], "a heartbeat that says nothing of it changes nothing"


def test_K1066_12_the_cordon_of_a_stopped_broker_is_known_also_to_the_next_controller() -> None:
    cluster = Cordoned()
    cluster.cordon(1, 0, 1)
    cluster.die(1)
    for _ in range(2):
        new = events.TopicToCreate(name="x", assignments=((0, (1, 2)),))
        error = cluster.ask(events.CreateTopics(topics=(new,))).topics[0].error
        assert (code_of(error), "cordoned" in str(error)) == (39, True)
        assert cluster.image.brokers[1].cordoned == (d(1, 0), d(1, 1))
        cluster.succeeded()


def test_K1066_15_a_cordon_of_run_time_survives_a_start_that_does_not_know_of_it() -> None:
    cluster = Cordoned()
    cluster.configure(1, "/disks/0")
    cluster.cordon(1, 0)
    cluster.register(1, cordoned=())
    assert cluster.image.brokers[1].cordoned == (d(1, 0),), "the file does not count where something else is set"
    cluster.configure(1, "*")
    cluster.register(1, cordoned=(d(1, 1),))
    assert cluster.image.brokers[1].cordoned == (d(1, 0), d(1, 1))
    cluster.configure(1, "")
    cluster.register(1, cordoned=(d(1, 1),))
    assert cluster.image.brokers[1].cordoned == ()


def test_K1066_15_uncordoned_by_the_file_and_a_restart() -> None:
    cluster = Cordoned()
    cluster.register(1, cordoned=(d(1, 0), d(1, 1)))
    cluster.beat(1)
    assert code_of(cluster.make("x", 3)) == 38
    cluster.register(1, cordoned=())
    cluster.beat(1)
    assert cluster.make("x", 3) is None


def test_K1066_15_new_brokers_take_everything_while_the_old_ones_are_cordoned() -> None:
    cluster = Cordoned(3)
    for old in (1, 2, 3):
        cluster.cordon(old, 0, 1)
    for new in (4, 5, 6):
        cluster.start(new)
    assert cluster.make("x", 3, 20) is None
    assert cluster.used("x") == {4, 5, 6}


def test_K1066_15_a_directory_that_is_added_makes_its_broker_usable() -> None:
    cluster = Cordoned()
    cluster.cordon(1, 0, 1)
    assert code_of(cluster.make("x", 3)) == 38
    added = (d(1, 0), d(1, 1), d(1, 2))
    cluster.beat(1, log_dirs=added)
    assert cluster.image.brokers[1].log_dirs == added
    assert cluster.make("x", 3) is None
    cluster.beat(1, log_dirs=added)
    assert cluster.records == []


def test_K1066_14_without_a_cordon_nothing_is_written_of_it() -> None:
    cluster = Cordoned()
    cluster.register(1)
    record = cluster.records[-1]
    assert isinstance(record, rec.RegisterBrokerRecord)
    assert encode_record(record) == encode_record(decode_record(encode_record(record)))
    assert record.cordoned == ()
    cluster.beat(1, cordoned=(), log_dirs=(d(1, 1), d(1, 0)), offline_dirs=(d(1, 0),))
    assert [r for r in cluster.records if getattr(r, "cordoned", None) is not None] == []
    assert cluster.make("x", 3) is None, "a dead directory alone makes nobody unusable"


def test_K1066_16_a_stopped_broker_is_forgotten_and_a_live_one_is_not() -> None:
    cluster = Cordoned()
    cluster.create("t", (1, 2))
    error = cluster.ask(events.UnregisterBroker(broker_id=3))
    assert (code_of(error), "alive" in str(error)) == (42, True)
    assert not cluster.records
    cluster.beat(3, want_shutdown=True)
    assert code_of(cluster.ask(events.UnregisterBroker(broker_id=3))) == 42, "it is still shutting down"
    cluster.beat(3, want_fence=True)
    assert cluster.ask(events.UnregisterBroker(broker_id=3)) is None
    assert sorted(cluster.image.brokers) == [1, 2]
    cluster.succeeded()
    assert sorted(cluster.image.brokers) == [1, 2]
    error = cluster.ask(events.UnregisterBroker(broker_id=77))
    assert (code_of(error), str(error)) == (102, "Broker ID 77 is not currently registered")


@pytest.mark.parametrize(
    ("record", "wire"),
    [
        (
            rec.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned=(UUID(int=7),)),
            "01" "11" "03" "00000001" "0000000000000002" "01" "0311" "02" "00000000000000000000000000000007",
        ),
        (
            rec.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, cordoned=()),
            "01" "11" "03" "00000001" "0000000000000002" "01" "0301" "01",
        ),
        (
            rec.RegisterBrokerRecord(
                broker_id=1, incarnation_id=UUID(int=5), broker_epoch=2, endpoints=(), fenced=True,
                log_dirs=(UUID(int=7),), cordoned=(UUID(int=7),),
            ),
            "01" "00" "04" "00000001" "00" "00000000000000000000000000000005" "0000000000000002" "01" "01" "00" "0100"
            "02" "0011" "0200000000000000000000000000000007" "0111" "0200000000000000000000000000000007",
        ),
    ],
)  # fmt: skip
def test_C6_K1066_12_the_records_byte_by_byte(record: rec.MetadataRecord, wire: str) -> None:
    assert encode_record(record).hex() == wire
    assert decode_record(bytes.fromhex(wire)) == record
