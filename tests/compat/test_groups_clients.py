"""Stock clients' consumer groups against a running cluster: contents, commits, rebalances, resuming, failover."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

PARTITIONS = 4
TIMEOUT_S = 60
POLL_MS = 100
SESSION_MS = 6_000

T = TypeVar("T")


class Read(NamedTuple):
    """One record that a member got."""

    partition: int
    offset: int
    value: bytes


class Member(Protocol):
    """One consumer of a group, whatever the client."""

    def poll(self) -> list[Read]:
        """Some records; also lets the client take part in its group."""
        ...

    def assigned(self) -> set[int]:
        """The partitions it has now."""
        ...

    def commit(self, partition: int, offset: int, metadata: str) -> None: ...

    def committed(self, partition: int) -> tuple[int, str | None] | None:
        """Offset and metadata; None for the metadata where the client does not show it."""
        ...

    def close(self) -> None: ...


class ConfluentMember:
    def __init__(self, bootstrap: str, topic: str, group: str, **settings: Any) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
                **settings,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Read]:
        messages = self._consumer.consume(500, POLL_MS / 1000)
        for message in messages:
            assert message.error() is None, message.error()
        return [Read(m.partition(), m.offset(), m.value()) for m in messages]

    def assigned(self) -> set[int]:
        return {p.partition for p in self._consumer.assignment()}

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        place = confluent_kafka.TopicPartition(self._topic, partition, offset, metadata)
        [done] = self._consumer.commit(offsets=[place], asynchronous=False)
        assert done.error is None

    def committed(self, partition: int) -> tuple[int, str | None] | None:
        [found] = self._consumer.committed([confluent_kafka.TopicPartition(self._topic, partition)], TIMEOUT_S)
        assert found.error is None
        return None if found.offset < 0 else (found.offset, found.metadata or "")

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    """The client is polled all the time, in a thread of its own, and knows its topic before it joins.

    Version 3.0.12 drops a JoinGroup whose answer comes after the poll that sent it, and sends another one: members
    that are polled in turn rebalance for as long as the answers come in the other one's turn. And where it joins again
    because it learned of partitions, as the leader of a group does, it drops the answer for good.
    """

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )
        assert self._consumer.partitions_for_topic(topic) == set(range(PARTITIONS))
        self._got: queue.SimpleQueue[list[Read]] = queue.SimpleQueue()
        self._closing = False
        self._thread = ThreadPoolExecutor(1, "kafka-python-member")
        self._polling = self._thread.submit(self._poll)

    def _poll(self) -> None:
        polled = self._consumer.poll(timeout_ms=5 * POLL_MS)
        self._got.put([Read(r.partition, r.offset, r.value) for batch in polled.values() for r in batch])
        if not self._closing:
            self._polling = self._thread.submit(self._poll)

    def _run(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return self._thread.submit(work, *arguments, **named).result(TIMEOUT_S)

    def poll(self) -> list[Read]:
        if self._polling.done():
            self._polling.result()
        found: list[Read] = []
        with contextlib.suppress(queue.Empty):
            found += self._got.get(timeout=POLL_MS / 1000)
            while True:
                found += self._got.get_nowait()
        return found

    def assigned(self) -> set[int]:
        return {p.partition for p in self._consumer.assignment()}

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        place = kafka.TopicPartition(self._topic, partition)
        self._run(self._consumer.commit, {place: kafka.OffsetAndMetadata(offset, metadata, -1)})

    def committed(self, partition: int) -> tuple[int, str | None] | None:
        place = kafka.TopicPartition(self._topic, partition)
        found = self._run(self._consumer.committed, place, metadata=True)
        return None if found is None else (found.offset, found.metadata)

    def close(self) -> None:
        self._closing = True
        self._run(self._consumer.close)
        self._thread.shutdown()


class AiokafkaMember:
    """The client lives in the event loop of a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._run(self._start(bootstrap, topic, group))

    async def _start(self, bootstrap: str, topic: str, group: str) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )
        # start() waits until the group is stable, which takes the other members' polls: so it runs beside them.
        self._starting = asyncio.ensure_future(consumer.start())
        return consumer

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def poll(self) -> list[Read]:
        async def poll() -> list[Read]:
            done, _ = await asyncio.wait([self._starting], timeout=POLL_MS / 1000)
            if not done:
                return []
            self._starting.result()
            polled = await self._consumer.getmany(timeout_ms=POLL_MS)
            return [Read(r.partition, r.offset, r.value) for batch in polled.values() for r in batch]

        return self._run(poll())

    def assigned(self) -> set[int]:
        return {p.partition for p in self._consumer.assignment()} if self._starting.done() else set()

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        place = aiokafka.TopicPartition(self._topic, partition)
        self._run(self._consumer.commit({place: (offset, metadata)}))

    def committed(self, partition: int) -> tuple[int, str | None] | None:
        found = self._run(self._consumer.committed(aiokafka.TopicPartition(self._topic, partition)))
        return None if found is None else (found, None)

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


METADATA = "where I was: ünïcode"
CLIENTS: dict[str, Callable[[str, str, str], Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


@contextlib.contextmanager
def member(client: str, cluster: Cluster, topic: str, group: str) -> Iterator[Member]:
    """A member that leaves its group at the end."""
    one = CLIENTS[client](cluster.bootstrap, topic, group)
    try:
        yield one
    finally:
        one.close()


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(TIMEOUT_S)
    cluster.wait_in_sync([topic])


def fill(cluster: Cluster, topic: str, first: int, count: int) -> set[Read]:
    """Records with offsets from ``first`` on in every partition; what a group has to get."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    written = {Read(p, o, f"{p}/{o}".encode()) for p in range(PARTITIONS) for o in range(first, first + count)}
    for record in sorted(written):
        producer.produce(topic, record.value, partition=record.partition)
    assert producer.flush(TIMEOUT_S) == 0
    return written


def poll_all(members: list[Member]) -> list[Read]:
    return [record for one in members for record in one.poll()]


def read_until(members: list[Member], expected: set[Read]) -> list[Read]:
    """Poll until everything expected has come; anything else fails."""
    got: list[Read] = []

    def complete() -> bool:
        got.extend(poll_all(members))
        assert set(got) <= expected
        return set(got) == expected

    wait_for(complete, f"{len(expected)} records", timeout_s=TIMEOUT_S)
    return got


def share(members: list[Member]) -> None:
    """Poll until the members have all partitions among them, everybody some."""

    def shared() -> bool:
        poll_all(members)
        parts = [one.assigned() for one in members]
        return all(parts) and sorted(p for part in parts for p in part) == list(range(PARTITIONS))

    try:
        wait_for(shared, f"{len(members)} members that share {PARTITIONS} partitions", timeout_s=TIMEOUT_S)
    except TimeoutError as error:
        raise TimeoutError(f"{error}; they have {[sorted(one.assigned()) for one in members]}") from None


def commit_all(members: list[Member], offset: int) -> None:
    """Every partition, by the member that has it."""
    owned = [(one, partition) for one in members for partition in sorted(one.assigned())]
    assert sorted(partition for _, partition in owned) == list(range(PARTITIONS))
    for one, partition in owned:
        one.commit(partition, offset, "")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_reads_everything_once_commits_and_goes_on_from_there(
    cluster: Cluster, topic: str, client: str
) -> None:
    create(cluster, topic)
    expected = fill(cluster, topic, 0, 50)
    group = f"group-of-{topic}"
    with member(client, cluster, topic, group) as one:
        assert sorted(read_until([one], expected)) == sorted(expected)
        assert one.committed(0) is None
        for partition in range(PARTITIONS):
            one.commit(partition, 50 - partition, METADATA)
        shown = None if client == "aiokafka" else METADATA
        assert [one.committed(p) for p in range(PARTITIONS)] == [(50 - p, shown) for p in range(PARTITIONS)]
    # The next one begins where the first one said, not where it had read to.
    more = fill(cluster, topic, 50, 5)
    more |= {r for r in expected if r.offset >= 50 - r.partition}
    with member(client, cluster, topic, group) as other:
        assert sorted(read_until([other], more)) == sorted(more)


@pytest.mark.parametrize("client", CLIENTS)
def test_two_members_share_and_the_one_that_stays_takes_over(cluster: Cluster, topic: str, client: str) -> None:
    create(cluster, topic)
    group, shown = f"group-of-{topic}", None if client == "aiokafka" else ""
    with member(client, cluster, topic, group) as first:
        share([first])
        with member(client, cluster, topic, group) as second:
            share([first, second])
            expected = fill(cluster, topic, 0, 30)
            got = read_until([first, second], expected)
            assert len(got) == len(expected)
            commit_all([first, second], 30)
        share([first])
        assert [first.committed(p) for p in range(PARTITIONS)] == [(30, shown) for _ in range(PARTITIONS)]
        more = fill(cluster, topic, 30, 30)
        assert sorted(read_until([first], more)) == sorted(more)


def leave(members: list[Member]) -> None:
    """Each leaves while the others are polled: a member whose JoinGroup waits for them says that it leaves after it."""
    with ThreadPoolExecutor(1, "leaving") as thread:
        while members:
            closing = thread.submit(members.pop().close)
            while not closing.done():  # the clients' own limits end it
                poll_all(members)
            closing.result()


def test_members_of_different_clients_share_a_group(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    members: list[Member] = []
    try:
        members.extend(kind(cluster.bootstrap, topic, f"group-of-{topic}") for kind in CLIENTS.values())
        share(members)
        expected = fill(cluster, topic, 0, 20)
        assert sorted(read_until(members, expected)) == sorted(expected)
    finally:
        leave(members)


def test_cooperative_members_hand_over_without_losing_what_they_keep(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    group, settings = f"group-of-{topic}", {"partition.assignment.strategy": "cooperative-sticky"}
    first = ConfluentMember(cluster.bootstrap, topic, group, **settings)
    second = None
    try:
        share([first])
        second = ConfluentMember(cluster.bootstrap, topic, group, **settings)
        share([first, second])
        assert len(first.assigned()) == len(second.assigned()) == 2
    finally:
        if second is not None:
            second.close()
        first.close()


def test_a_static_member_that_restarts_keeps_its_partitions(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    group = f"group-of-{topic}"

    def static(name: str) -> ConfluentMember:
        return ConfluentMember(cluster.bootstrap, topic, group, **{"group.instance.id": name})

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    first, second = static("one"), static("two")
    try:
        share([first, second])
        before = second.assigned()
        second.close()  # a static member does not leave
        second = static("two")
        share([first, second])
        assert second.assigned() == before
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert described.state is ConsumerGroupState.STABLE
        assert {m.group_instance_id for m in described.members} == {"one", "two"}
    finally:
        first.close()
        second.close()


def test_groups_are_listed_described_altered_and_deleted(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    group = f"group-of-{topic}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with member("confluent", cluster, topic, group) as one:
        share([one])
        one.commit(0, 0, "")
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        assert listed.errors == []
        assert [g.state for g in listed.valid if g.group_id == group] == [ConsumerGroupState.STABLE]
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert described.partition_assignor == "range"
        [only] = described.members
        assert {p.partition for p in only.assignment.topic_partitions} == set(range(PARTITIONS))
        with pytest.raises(confluent_kafka.KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
            admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    place = confluent_kafka.TopicPartition(topic, 1, 77)
    request = confluent_kafka.ConsumerGroupTopicPartitions(group, [place])
    altered = admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT_S)
    assert altered.topic_partitions[0].error is None
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
    assert {(p.partition, p.offset) for p in found.topic_partitions} == {(0, 0), (1, 77)}
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert group not in [g.group_id for g in listed.valid]


def test_a_group_outlives_its_coordinator_and_a_restart_of_everything(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster(settings={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"})
    create(cluster, topic)
    group = f"group-of-{topic}"
    expected = fill(cluster, topic, 0, 20)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with member("confluent", cluster, topic, group) as one:
        read_until([one], expected)
        for partition in range(PARTITIONS):
            one.commit(partition, 20, METADATA)
        cluster.wait_in_sync()
        coordinator = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).coordinator.id
        cluster.kill(coordinator)
        more = fill(cluster, topic, 20, 20)
        assert sorted(read_until([one], more)) == sorted(more)
        wait_for(lambda: committed_by(one, 0, 40), "a commit to the new coordinator", timeout_s=TIMEOUT_S)
        cluster.revive()
        cluster.wait_in_sync()
    cluster.stop()
    cluster.start()
    with member("confluent", cluster, topic, group) as one:
        rest = {r for r in more if r.partition > 0}
        assert sorted(read_until([one], rest)) == sorted(rest)
        assert [one.committed(p) for p in range(PARTITIONS)] == [(40 if p == 0 else 20, METADATA) for p in range(4)]


def committed_by(one: Member, partition: int, offset: int) -> bool:
    """Whether the commit got through; a coordinator that is just changing refuses it."""
    try:
        one.commit(partition, offset, METADATA)
    except confluent_kafka.KafkaException:
        one.poll()
        return False
    return True
