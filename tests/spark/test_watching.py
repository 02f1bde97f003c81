"""An idle stream's waits on real brokers: in fetch sessions, which a restart of a broker ends."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.spark.options import parse_read
from holdfast.spark.topics import Topics

if TYPE_CHECKING:
    from holdfast.testing import Cluster

PARTITIONS = 300


def test_an_idle_stream_names_its_partitions_once_and_a_record_ends_its_wait(cluster: Cluster, topic: str) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1))
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "kafka.fetch.max.wait.ms": "20000"}
    topics = Topics(parse_read(given, streaming=True))
    positions = topics.latest(topics.partitions())
    assert len(positions) == PARTITIONS

    def woken_by_a_record() -> None:
        """Waits, and ends long before 20 s are over."""
        began_s = time.monotonic()
        waiting = threading.Thread(target=topics.wait_beyond, args=(positions,))
        waiting.start()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        while waiting.is_alive():
            producer.produce(topic, b"x", partition=7)
            producer.flush(10)
            waiting.join(0.5)
        assert time.monotonic() - began_s < 15
        positions.update(topics.latest(positions))

    woken_by_a_record()
    assert topics._watcher is not None
    first = {broker: session.session_id for broker, session in topics._watcher.sessions.items()}
    given_by = {broker: number for broker, number in first.items() if number}
    assert given_by, "the broker that answered gave a session"
    woken_by_a_record()
    woken_by_a_record()
    later = {broker: session.session_id for broker, session in topics._watcher.sessions.items()}
    assert {broker: later[broker] for broker in given_by} == given_by, "it goes on in its session"
    for session in topics._watcher.sessions.values():
        session._id = session._id and session._id ^ 1  # as after a restart of the broker: it knows of no such session
    woken_by_a_record()
    woken_by_a_record()
    assert any(session.session_id for session in topics._watcher.sessions.values())
