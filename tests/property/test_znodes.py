"""Images in ZooKeeper's tree: what is written of one reads as the same, a commit makes the same tree as its image, and
after every multi of a commit the tree says what an atom's end left, or, in the middle of one, nothing of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.metadata import znode_paths
from holdfast.metadata.image import ClusterImage, PartitionImage, TopicImage, partition_record
from holdfast.metadata.pieces import atoms
from holdfast.metadata.records import (
    UNASSIGNED_DIRECTORY,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerClaimRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RecoveryState,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.znode_notices import CHANGES
from holdfast.metadata.znode_tree import image_of, read_tree
from holdfast.metadata.znode_writes import cut, weight
from holdfast.metadata.znodes import TreeWriter
from holdfast.model.listeners import Endpoint, SecurityProtocol
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.quota_entities import OF_CLIENTS, entity_of
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from tests.checks.memory_tree import MemoryTree
from tests.property.test_controller import ControllerMachine

LARGE = 1 << 20

# -- images ----------------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2**31 - 100)
BROKERS = st.integers(0, 5) | NUMBERS
REPLICAS = st.lists(BROKERS, unique=True, max_size=10).map(tuple)
IDS = st.uuids()
HOSTS = st.sampled_from(("localhost", "10.0.0.1", "::1", "fe80::1"))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
TOPIC_NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
ENDPOINTS = st.lists(
    st.builds(
        Endpoint,
        name=st.sampled_from(("PLAINTEXT", "BROKERS", "X", "Y")),
        host=HOSTS,
        port=st.integers(0, 65535),
        security_protocol=st.sampled_from(SecurityProtocol),
    ),
    min_size=1,
    unique_by=lambda endpoint: endpoint.name,
)

ACLS = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from([kind for kind in ResourceKind if kind > ResourceKind.ANY]),
        st.sampled_from(("a", "a/b", "*", ".", "..", "a:b", "%2F", "\x7f", "\ue000", "é")) | TEXTS,
        st.sampled_from((PatternKind.LITERAL, PatternKind.PREFIXED)),
    ),
    st.builds(
        AclEntry,
        TEXTS.map("User:{}".format),
        st.sampled_from(("*", "10.0.0.1")),
        st.sampled_from([operation for operation in Operation if operation > Operation.ANY]),
        st.sampled_from((Permission.DENY, Permission.ALLOW)),
    ),
)

CREDENTIALS = st.builds(
    ScramCredential,
    salt=st.binary(max_size=20),
    stored_key=st.binary(max_size=64),
    server_key=st.binary(max_size=64),
    iterations=st.integers(1, 2**31 - 1),
)
USERS = st.builds(
    UserScramCredentialRecord,
    name=st.sampled_from(("a", "a/b", ".", "..", "<default>", "a%2Fb", "a b", "~", "clients")) | TEXTS.filter(bool),
    mechanism=st.sampled_from(ScramMechanism),
    credential=CREDENTIALS,
)
QUOTA_NAMES = st.sampled_from((None, "a", "b", "..", "clients", "<default>", "é/é"))
RATES = st.floats(min_value=0.001, allow_infinity=False) | st.integers(1, 2**53).map(float)
BYTE_RATES = st.integers(1, 2**53).map(float)


@st.composite
def quotas(draw: st.DrawFn) -> ClientQuotaRecord:
    if draw(st.integers(0, 4)) == 0:
        named, key, value = {"ip": draw(QUOTA_NAMES)}, "connection_creation_rate", draw(st.integers(1, 2**31 - 1))
        return ClientQuotaRecord(entity=entity_of(named.items()), key=key, value=float(value))
    named = draw(st.dictionaries(st.sampled_from(("user", "client-id")), QUOTA_NAMES, min_size=1))
    key = draw(st.sampled_from(tuple(OF_CLIENTS)))
    rate = draw(RATES if OF_CLIENTS[key] is None else BYTE_RATES)
    return ClientQuotaRecord(entity=entity_of(named.items()), key=key, value=rate)


@st.composite
def registrations(draw: st.DrawFn, broker: int | None = None) -> RegisterBrokerRecord:
    endpoints = draw(ENDPOINTS)
    names = st.none() | st.sampled_from([endpoint.name for endpoint in endpoints])
    return RegisterBrokerRecord(
        broker_id=draw(BROKERS) if broker is None else broker,
        incarnation_id=draw(IDS),
        broker_epoch=draw(st.integers(0, 2**63 - 1)),
        endpoints=tuple(endpoints),
        rack=draw(st.none() | TEXTS),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=tuple(draw(st.lists(IDS, max_size=3))),
        cordoned=tuple(draw(st.lists(IDS, max_size=3))),
        inter_broker=draw(names),
        control_plane=draw(names),
    )


@st.composite
def partition_images(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(REPLICAS)
    members = (
        st.just(replicas) | st.lists(st.sampled_from(replicas), unique=True).map(tuple) if replicas else st.just(())
    )
    directories = st.just((UNASSIGNED_DIRECTORY,) * len(replicas)) | st.just(()) | st.lists(IDS, max_size=3).map(tuple)
    return PartitionImage(
        replicas=replicas,
        isr=draw(members),
        leader=draw(st.none() | BROKERS),
        leader_epoch=draw(NUMBERS),
        partition_epoch=draw(NUMBERS),
        adding=draw(members),
        removing=draw(members),
        directories=draw(directories),
        elr=draw(members),
        last_known_elr=draw(members),
        recovery_state=draw(st.sampled_from(RecoveryState)),
        created=draw(st.integers(-1, 2**63 - 1)),
    )


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    records: list[MetadataRecord] = []
    for name, level in draw(st.dictionaries(TEXTS, st.integers(1, 32767), max_size=3)).items():
        records.append(FeatureLevelRecord(name=name, level=level))
    records += draw(st.lists(registrations(), max_size=3, unique_by=lambda record: record.broker_id))
    configs = st.dictionaries(TEXTS, TEXTS, max_size=3)
    resources: list[tuple[int, str]] = [
        (4, name) for name in draw(st.lists(BROKERS.map(str) | st.just(""), unique=True))
    ]
    resources += draw(st.lists(st.tuples(st.sampled_from((32, 101)), TEXTS), unique=True, max_size=3))
    for name in draw(st.lists(TOPIC_NAMES, max_size=3, unique=True)):
        topic_id = draw(IDS)
        records.append(TopicRecord(name=name, topic_id=topic_id))
        for number, partition in enumerate(draw(st.lists(partition_images(), max_size=4))):
            records.append(partition_record(topic_id, number, partition))
        resources.append((2, name))
    for kind, resource in resources:
        for key, value in draw(configs).items():
            records.append(ConfigRecord(resource_type=kind, resource_name=resource, name=key, value=value))
    records.append(ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=draw(st.integers(0, 2**63 - 1))))
    records += [AccessControlEntryRecord(id=acl.id(), acl=acl) for acl in draw(st.sets(ACLS, max_size=4))]
    if draw(st.booleans()):
        records.append(ScramSecretRecord(secret=draw(st.binary(min_size=1, max_size=32))))
    records += draw(st.lists(USERS, max_size=4))
    records += draw(st.lists(quotas(), max_size=6))
    if draw(st.booleans()):
        records.append(ControllerClaimRecord(controller_epoch=draw(NUMBERS), broker_id=draw(BROKERS), host="h", port=1))
    offset = draw(st.integers(len(records), 2**62))
    return ClusterImage.empty("c").apply(records, offset - len(records) + 1)[0]


def tree_of(image: ClusterImage, limit: int = LARGE) -> MemoryTree:
    tree = MemoryTree.with_base()
    for multi in TreeWriter().snapshot(image, limit):
        assert sum(map(weight, multi.writes)) <= limit
        tree.write(multi.writes)
    return tree


@settings(max_examples=100, deadline=None)
@given(image=images(), limit=st.sampled_from((1 << 13, LARGE)))
def test_an_image_reads_as_it_was_written(image: ClusterImage, limit: int) -> None:
    tree = tree_of(image, limit)
    assert image_of(tree.asked(), "c") == image
    assert image_of(tree.nodes, "c") == image, "nodes that are not asked for are skipped"
    assert not read_tree(tree.asked()).repairs


# -- commits ---------------------------------------------------------------------------------------------------


class Commits:
    """A tree that is written by commits, beside the image that they make. Each multi is followed by a look at what a
    new controller would find."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.tree = tree_of(image)
        self.writer = TreeWriter()
        self.multis = 0

    def commit(self, records: Sequence[MetadataRecord], limit: int) -> None:
        before = self.image
        self.image, _ = before.apply(records, before.next_offset)
        ends = {before.next_offset}
        for atom in atoms(records):
            ends.add(max(ends) + len(atom))
        found = before.next_offset
        for multi in self.writer.writes(before, self.image, records, limit):
            assert sum(map(weight, multi.writes)) <= limit
            self.tree.write(multi.writes)
            self.multis += 1
            found = found if multi.end_offset is None else multi.end_offset
            assert found in ends, "cut in the middle of an atom"
            middle, _ = before.apply(records[: found - before.next_offset], before.next_offset)
            self.goes_on(middle, limit)
        assert found == self.image.next_offset
        assert set(self.writer.emptied) == set(read_tree(self.tree.nodes).emptied)
        assert plain(self.tree) == plain(tree_of(self.image))

    def goes_on(self, image: ClusterImage, limit: int) -> None:
        """A new controller finds ``image``, whole, and so does one after each part of its repairs."""
        tree = self.tree.copy()
        reading = read_tree(tree.asked())
        assert image_of(tree.asked(), "c") == image
        for piece in cut(reading.repairs, limit):
            tree.write(piece)
            assert image_of(tree.asked(), "c") == image
        assert plain(tree) == plain(tree_of(image))
        assert not read_tree(tree.asked()).repairs


def plain(tree: MemoryTree) -> dict[str, Any]:
    """What a tree says, less what no image knows: news, who wrote a state, whose a block of ids is, and configurations
    that were there once."""
    said: dict[str, Any] = {}
    for path, node in tree.nodes.items():
        if any(znode_paths.sequence_of(path, f"{parent}/{name}") is not None for parent, name in CHANGES.items()):
            continue
        value: Any = json.loads(node.data) if node.data.startswith(b"{") else node.data
        if path.endswith("/state"):
            del value["controller_epoch"]
        if path == znode_paths.PRODUCER_IDS and value:
            value = value["block_end"]
        if path.startswith(znode_paths.BROKER_CONFIGS + "/") and not value["config"]:
            continue
        said[path] = value
    return said


LIMITS = st.sampled_from((4500, 5000, 7000, 20_000, LARGE))
"""The smaller ones are too small for most topics: their atoms take several multis."""


class ZnodesMachine(ControllerMachine):
    """The cluster of test_controller.py, with a tree."""

    commits: Commits | None = None

    def handle(self, event: Any) -> Any:
        begin, before = len(self.shared.log), self.image
        reply = super().handle(event)
        records = self.shared.log[begin:]
        if self.commits is None or self.commits.image != before:
            self.commits = Commits(before)  # another reign
        if records:
            self.commits.commit(records, self.rng.choice((1600, 2500, LARGE)))
            assert self.commits.image == self.image
        return reply


TestCommitsOfAController = ZnodesMachine.TestCase
TestCommitsOfAController.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


@st.composite
def commits(draw: st.DrawFn, image: ClusterImage) -> list[MetadataRecord]:
    """Records that a commit on ``image`` may have, whether a controller makes such or not."""
    made: list[MetadataRecord] = []
    now = image

    def add(*records: MetadataRecord) -> None:
        nonlocal now
        now, _ = now.apply(records, now.next_offset)
        made.extend(records)

    for _ in range(draw(st.integers(1, 6))):
        kind = draw(
            st.sampled_from(("broker", "topic", "topic", "grow", "change", "change", "remove", "config", "rest"))
        )
        topics = [topic for topic in now.sorted_topics() if topic.partitions]
        if kind == "broker":
            broker = draw(st.integers(1, 4))
            if broker not in now.brokers or draw(st.booleans()):
                add(draw(registrations(broker)))
            elif draw(st.booleans()):
                add(UnregisterBrokerRecord(broker_id=broker, broker_epoch=now.brokers[broker].epoch))
            else:
                add(BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=1, fenced=draw(st.booleans())))
        elif kind == "topic":
            name = draw(st.sampled_from("abc"))
            if name not in now.topics:
                topic_id = draw(IDS)
                configs = [
                    ConfigRecord(resource_type=2, resource_name=name, name=key, value="1")
                    for key in draw(st.lists(st.sampled_from(("x", "y")), unique=True))
                ]
                partitions = draw(st.lists(partition_images(), min_size=1, max_size=12))
                records = [partition_record(topic_id, n, partition) for n, partition in enumerate(partitions)]
                add(TopicRecord(name=name, topic_id=topic_id), *configs, *records)
        elif kind == "grow" and topics:
            topic = draw(st.sampled_from(topics))
            first = len(topic.partitions)
            more = draw(st.lists(partition_images(), min_size=1, max_size=12))
            add(*(partition_record(topic.topic_id, first + n, partition) for n, partition in enumerate(more)))
        elif kind == "change" and topics:
            topic = draw(st.sampled_from(topics))
            for number in draw(st.lists(st.integers(0, len(topic.partitions) - 1), max_size=6)):
                add(draw(partition_changes(topic, number)))
        elif kind == "remove" and topics:
            add(RemoveTopicRecord(topic_id=draw(st.sampled_from(topics)).topic_id))
        elif kind == "config":
            resources = [(4, ""), (4, "1"), (100, "/a b"), *((2, topic.name) for topic in topics)]
            kind_of, name = draw(st.sampled_from(resources))
            for key in draw(st.lists(st.sampled_from(("x", "y")), unique=True)):
                value = draw(st.none() | TEXTS)
                add(ConfigRecord(resource_type=kind_of, resource_name=name, name=key, value=value))
        else:
            add(FeatureLevelRecord(name=draw(st.sampled_from("fg")), level=draw(st.integers(0, 3))))
            next_id = now.next_producer_id + draw(st.integers(1, 1000))
            add(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=next_id))
            for acl in draw(st.lists(ACLS, max_size=3)):
                add(AccessControlEntryRecord(id=acl.id(), acl=acl))
            for acl_id in draw(st.sets(st.sampled_from([acl.id() for acl in now.acls]))) if len(now.acls) else ():
                add(RemoveAccessControlEntryRecord(id=acl_id))
            for record in draw(st.lists(st.one_of(USERS, quotas()), max_size=4)):
                add(record)
            users = sorted(now.users.credentials)
            for name, mechanism in draw(st.sets(st.sampled_from(users))) if users else ():
                add(RemoveUserScramCredentialRecord(name=name, mechanism=mechanism))
            limited = [(entity, key) for entity in now.quotas for key in sorted(now.quotas.of(entity))]
            for entity, key in draw(st.sets(st.sampled_from(limited))) if limited else ():
                add(ClientQuotaRecord(entity=entity, key=key, value=None))
            if draw(st.booleans()):
                add(ScramSecretRecord(secret=draw(st.binary(min_size=1, max_size=32))))
    return made


@st.composite
def partition_changes(draw: st.DrawFn, topic: TopicImage, number: int) -> PartitionChangeRecord:
    other = draw(partition_images())
    some = st.booleans()
    return PartitionChangeRecord(
        partition=number,
        topic_id=topic.topic_id,
        isr=other.isr if draw(some) else None,
        leader=other.leader,
        replicas=other.replicas if draw(some) else None,
        adding=other.adding if draw(some) else None,
        removing=other.removing if draw(some) else None,
        elr=other.elr if draw(some) else None,
        directories=other.directories if draw(some) else None,
    )


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_commit_makes_the_tree_of_its_image_and_each_of_its_multis_that_of_an_image_between(data: Any) -> None:
    made = Commits(
        ClusterImage.empty("c").apply([ControllerClaimRecord(controller_epoch=1, broker_id=1, host="h", port=1)], 0)[0]
    )
    for _ in range(data.draw(st.integers(1, 4))):
        made.commit(data.draw(commits(made.image)), data.draw(LIMITS))
