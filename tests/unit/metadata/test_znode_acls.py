"""Access control lists as nodes: the texts of Kafka's AclAuthorizer, and names that no node can have."""

import json

import pytest

from holdfast.metadata import records as rec
from holdfast.metadata import znode_acls
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.znode_tree import TreeNode, image_of, read_tree
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite, SetNode
from holdfast.metadata.znodes import TreeWriter
from holdfast.model.errors import MetadataError
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from tests.checks.memory_tree import MemoryTree

TOPIC = ResourcePattern(ResourceKind.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceKind.TRANSACTIONAL_ID, "team-", PatternKind.PREFIXED)
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = AclEntry("User:bob", "10.0.0.1", Operation.IDEMPOTENT_WRITE, Permission.DENY)


def add(*acls: AclBinding) -> list[rec.MetadataRecord]:
    return [rec.AccessControlEntryRecord(id=acl.id(), acl=acl) for acl in acls]


def commit(image: ClusterImage, *records: rec.MetadataRecord) -> tuple[ClusterImage, list[NodeWrite]]:
    after, _ = image.apply(records, image.next_offset)
    writes = [write for multi in TreeWriter().writes(image, after, records, 1 << 20) for write in multi.writes]
    return after, writes[:-1]  # the last one says where the log ends


def test_nodes_are_kafkas() -> None:
    image, writes = commit(ClusterImage.empty("c"), *add(AclBinding(TOPIC, READ), AclBinding(PREFIX, WRITE)))
    assert writes == [
        CreateNode(
            path="/kafka-acl/Topic/orders",
            data=b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read",'
            b'"host":"*"}]}',
        ),
        CreateNode(path="/kafka-acl-changes/acl_changes_", data=b"TOPIC:orders", sequence=True),
        CreateNode(
            path="/kafka-acl-extended/prefixed/TransactionalId/team-",
            data=b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Deny","operation":"IdempotentWrite",'
            b'"host":"10.0.0.1"}]}',
        ),
        CreateNode(
            path="/kafka-acl-extended-changes/acl_changes_",
            data=b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"team-","patternType":"PREFIXED"}',
            sequence=True,
        ),
    ]
    more, writes = commit(image, *add(AclBinding(TOPIC, WRITE)))
    assert [type(write) for write in writes] == [SetNode, CreateNode]
    gone = [rec.RemoveAccessControlEntryRecord(id=AclBinding(TOPIC, entry).id()) for entry in (READ, WRITE)]
    _, writes = commit(more, *gone)
    assert writes[0] == DeleteNode(path="/kafka-acl/Topic/orders")
    assert len(writes) == 2
    acl = AclBinding(TOPIC, WRITE)
    assert commit(image, *add(acl), rec.RemoveAccessControlEntryRecord(id=acl.id()))[1] == []


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (ResourcePattern(ResourceKind.GROUP, "*"), "/kafka-acl/Group/*"),
        (ResourcePattern(ResourceKind.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (ResourcePattern(ResourceKind.GROUP, "a/b"), "/holdfast/acls/LITERAL:Group:a%2Fb"),
        (ResourcePattern(ResourceKind.GROUP, "..", PatternKind.PREFIXED), "/holdfast/acls/PREFIXED:Group:.."),
        (ResourcePattern(ResourceKind.USER, "User:a:b"), "/kafka-acl/User/User:a:b"),
    ],
)
def test_a_pattern_has_one_path(resource: ResourcePattern, path: str) -> None:
    assert znode_acls.path(resource) == path
    assert znode_acls.resource_of(path) == resource


@pytest.mark.parametrize(
    "path",
    [
        "/kafka-acl/Nothing/a", "/holdfast/acls/LITERAL:Group:a", "/holdfast/acls/MATCH:Group:a%2Fb",
        "/holdfast/acls/a", "/kafka-acl-extended/match/Topic/a", "/holdfast/acls/LITERAL:group:a%2Fb",
    ],
)  # fmt: skip
def test_other_paths_are_skipped(path: str) -> None:
    assert znode_acls.resource_of(path) is None
    assert znode_acls.read_node(path, b"{") == []


def test_what_tools_of_kafka_wrote_is_read() -> None:
    """Keys in another order, an entry twice; a node without entries is taken away, as nobody would ever."""
    tree = MemoryTree.with_base()
    entry = {"host": "*", "operation": "All", "permissionType": "Allow", "principal": "User:CN=a, O=b"}
    text = json.dumps({"acls": [entry, entry], "version": 1}).encode()
    tree.write([CreateNode(path="/kafka-acl/Topic/t", data=text), CreateNode(path="/kafka-acl/Topic/u")])
    tree.write([CreateNode(path="/kafka-acl/Topic/v", data=b'{"version":1,"acls":[]}')])
    image = image_of(tree.asked(), "c")
    assert list(image.acls) == [
        AclBinding(
            ResourcePattern(ResourceKind.TOPIC, "t"),
            AclEntry("User:CN=a, O=b", "*", Operation.ALL, Permission.ALLOW),
        )
    ]
    gone = [write for write in read_tree(tree.asked()).repairs if isinstance(write, DeleteNode)]
    assert gone == [DeleteNode(path="/kafka-acl/Topic/u"), DeleteNode(path="/kafka-acl/Topic/v")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"version":2,"acls":[]}', "version is 2: expected a number from 1 to 1"),
        ('{"version":1}', "acls is missing"),
        (
            '{"version":1,"acls":[{"principal":"a","host":"*","operation":"Read","permissionType":"Allow"}]}',
            r"acls\[0\].principal is 'a': expected Type:name",
        ),
        (
            '{"version":1,"acls":[{"principal":"U:a","host":"*","operation":"Fly","permissionType":"Allow"}]}',
            r"acls\[0\].operation is 'Fly': expected one of",
        ),
        (
            '{"version":1,"acls":[{"principal":"U:a","host":"*","operation":"Read","permissionType":"Any"}]}',
            r"permissionType is 'Any': expected one of Allow, Deny",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused(text: str, why: str) -> None:
    tree = {"/kafka-acl/Topic/t": TreeNode(data=text.encode())}
    with pytest.raises(MetadataError, match=f"znode /kafka-acl/Topic/t: .*{why}"):
        read_tree(tree)
