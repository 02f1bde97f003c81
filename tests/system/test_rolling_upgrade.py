"""An upgrade in two rolling bounces, from the software before there was anything to bounce for (K112-97).

First the new software with the old protocol, then the new protocol. What brokers of both softwares share is a machine,
so this is the embedded store.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic

from holdfast.client.admin import AdminClient as OurAdmin
from holdfast.client.broker_ids import list_hosts, set_host
from holdfast.model.config_protocol import ONE_ADDRESS
from holdfast.model.errors import InvalidRequestError
from holdfast.testing import wait_for
from tests.system.bounces import BEFORE, TIMEOUT_S, Bounced, software_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PARTITIONS = 3
OLD_PROTOCOL = {"inter_broker_protocol_version": ONE_ADDRESS, "operator_listener_names": "PLAINTEXT"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Bounced]:
    made = Bounced(tmp_path, software_of(BEFORE, tmp_path / "earlier"))
    yield made
    made.end()


def listener_of_brokers(brokers: Bounced, broker: int) -> dict[str, str]:
    """What the second bounce brings: no protocol is given, and brokers have a listener for themselves."""
    own = f"PLAINTEXT://127.0.0.1:{brokers.port(broker)},INTERNAL://127.0.0.1:{brokers.between(broker)}"
    return {
        "listeners": own, "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter_broker_listener_name": "INTERNAL", "operator_listener_names": "PLAINTEXT",
    }  # fmt: skip


def create(brokers: Bounced, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], config=config)
    admin.create_topics([new])[topic].result(TIMEOUT_S)


def hosts(brokers: Bounced, set_one: str | None = None) -> list[int]:
    """The ids that the cluster keeps for hosts."""

    async def run() -> list[int]:
        client = OurAdmin(brokers.bootstrap.split(","))
        try:
            found = await (list_hosts(client) if set_one is None else set_host(client, set_one, 9))
        finally:
            client.close()
        return sorted(each.broker_id for each in found.hosts)

    return asyncio.run(run())


class Load:
    """A producer and a group of one consumer, until the end of the block, with a ledger of what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._end = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]
        self.ledger: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """By partition: offset -> number."""
        self.read: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.written = 0
        self.errors: list[Any] = []

    def _acked(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
            return
        found = self.ledger[message.partition()].setdefault(message.offset(), int(message.value()))
        if found != int(message.value()):
            self.errors.append(f"two records acknowledged at {message.offset()}")

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
             "log_level": 0}
        )  # fmt: skip
        while not self._end.is_set():
            for partition in range(PARTITIONS):
                producer.produce(self._topic, b"%d" % self.written, None, partition, on_delivery=self._acked)
            self.written += 1
            producer.poll(0.003)
        if producer.flush(TIMEOUT_S):
            self.errors.append("records were not acknowledged")

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "bounced", "auto.offset.reset": "earliest",
             "auto.commit.interval.ms": 500, "log_level": 0}
        )  # fmt: skip
        consumer.subscribe([self._topic])
        try:
            while not (self._end.is_set() and self._has_read_all()) and not self.errors:
                for message in consumer.consume(1000, 0.2):
                    if message.error() is not None:
                        self.errors.append(message.error())
                    else:
                        self.read[message.partition()][message.offset()] = int(message.value())
        finally:
            consumer.close()

    def _has_read_all(self) -> bool:
        return not self._threads[0].is_alive() and [len(p) for p in self.read] == [len(p) for p in self.ledger]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)

    def goes_on(self) -> None:
        """A hundred more of each partition are acknowledged and read."""
        wanted = len(self.ledger[0]) + 100

        def more() -> bool:
            assert self.errors == []
            return all(len(part) >= wanted for part in (*self.ledger, *self.read))

        wait_for(more, "more records", timeout_s=TIMEOUT_S)


def read_all(brokers: Bounced, topic: str) -> list[dict[int, int]]:
    """Every record of every partition, by its offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
         "log_level": 0}
    )  # fmt: skip
    found: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
    try:
        places = [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places]
        consumer.assign(places)

        def take() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found[message.partition()][message.offset()] = int(message.value() or b"")
            return [len(part) for part in found] == ends

        wait_for(take, f"the records of {topic}", timeout_s=TIMEOUT_S)
    finally:
        consumer.close()
    return found


def test_K112_97_two_rolling_bounces_from_the_software_before_to_the_new_protocol(brokers: Bounced, topic: str) -> None:
    """Under load, with an old controller over new brokers and a new one over an old broker; each creates a topic."""
    for broker in brokers.ids:
        brokers.start(broker, earlier=True)
    brokers.wait_serves(*brokers.ids)
    brokers.wait_whole()
    create(brokers, topic)
    made = [topic]

    def bounce(broker: int, **options: Any) -> None:
        load.goes_on()
        brokers.stop(broker)
        brokers.start(broker, **options)
        brokers.wait_serves(broker)
        brokers.wait_whole(*made)

    def create_one_more() -> None:
        made.append(f"{topic}-{len(made)}")
        create(brokers, made[-1])
        brokers.wait_whole(*made)

    with Load(brokers.bootstrap, topic) as load:
        controller = brokers.controller()
        last, first = (broker for broker in brokers.ids if broker != controller)
        bounce(first, **OLD_PROTOCOL)
        assert brokers.controller() == controller
        create_one_more()  # by the old software, over one of the new
        bounce(controller, **OLD_PROTOCOL)
        if brokers.controller() == last:
            bounce(last, earlier=True)
        assert "earlier" in str(brokers.software(last)) and "earlier" not in str(brokers.software(first))
        assert brokers.controller() != last
        create_one_more()  # by the new software, over one of the old
        bounce(last, **OLD_PROTOCOL)
        create_one_more()
        assert hosts(brokers) == [], "nothing was recorded that the software before does not know"
        with pytest.raises(InvalidRequestError, match=r"inter\.broker\.protocol\.version=0\.1-IV0.*0\.1-IV1"):
            hosts(brokers, set_one="a-host")
        for broker in brokers.ids:
            bounce(broker, **listener_of_brokers(brokers, broker))
        create_one_more()
        load.goes_on()
    assert load.errors == []
    assert hosts(brokers) == list(brokers.ids)
    numbers = list(range(load.written))
    assert [[part[offset] for offset in sorted(part)] for part in load.ledger] == [numbers] * PARTITIONS
    assert read_all(brokers, topic) == load.ledger == load.read
    for broker in brokers.ids:
        brokers.stop(broker)


@pytest.mark.long("the two bounces are in every run")
def test_K112_97_a_broker_with_the_old_protocol_can_go_back_to_the_software_before(
    brokers: Bounced, topic: str
) -> None:
    """All of them, so that the software before reads all that was written: what they decided, and every record."""
    for broker in brokers.ids:
        brokers.start(broker, earlier=True)
    brokers.wait_serves(*brokers.ids)
    brokers.wait_whole()
    create(brokers, topic)
    for broker in brokers.ids:
        brokers.stop(broker)
    for broker in brokers.ids:
        brokers.start(broker, **OLD_PROTOCOL)
    brokers.wait_serves(*brokers.ids)
    brokers.wait_whole(topic)
    create(brokers, f"{topic}-new", **{"retention.ms": "777000"})
    with Load(brokers.bootstrap, topic) as load:
        load.goes_on()
    for broker in brokers.ids:
        brokers.stop(broker)
    for broker in brokers.ids:
        brokers.start(broker, earlier=True)
    brokers.wait_serves(*brokers.ids)
    brokers.wait_whole(topic, f"{topic}-new")
    assert load.errors == []
    assert read_all(brokers, topic) == load.ledger
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, f"{topic}-new")
    told: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert told["retention.ms"].value == "777000"
    create(brokers, f"{topic}-back")
    brokers.wait_whole(topic, f"{topic}-new", f"{topic}-back")
