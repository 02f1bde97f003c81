"""SCRAM users and quotas as nodes: the texts of Kafka 3.9, and what is there for nothing."""

from __future__ import annotations

import pytest

from holdfast.metadata import records as rec
from holdfast.metadata import znode_users
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.znode_tree import TreeNode, image_of, read_tree
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite, SetNode
from holdfast.metadata.znodes import TreeWriter
from holdfast.model.errors import MetadataError
from holdfast.security.quota_entities import QuotaEntity, entity_of
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from tests.checks.memory_tree import MemoryTree

CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
CREDENTIAL_TEXT = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
ALICE = rec.UserScramCredentialRecord(name="alice", mechanism=ScramMechanism.SCRAM_SHA_512, credential=CREDENTIAL)
OF_ALICE: QuotaEntity = (("user", "alice"),)
WITH_CLIENT: QuotaEntity = (("user", "alice"), ("client-id", "a b"))


def quota(entity: QuotaEntity, key: str, value: float | None) -> rec.ClientQuotaRecord:
    return rec.ClientQuotaRecord(entity=entity, key=key, value=value)


def commit(image: ClusterImage, *records: rec.MetadataRecord) -> tuple[ClusterImage, list[NodeWrite]]:
    after, _ = image.apply(records, image.next_offset)
    writes = [write for multi in TreeWriter().writes(image, after, records, 1 << 20) for write in multi.writes]
    return after, writes[:-1]  # the last one says where the log ends


def changed(entity: str) -> CreateNode:
    data = f'{{"version":2,"entity_path":"{entity}"}}'.encode()
    return CreateNode(path="/config/changes/config_change_", data=data, sequence=True)


def test_nodes_are_kafkas() -> None:
    records = (
        rec.ScramSecretRecord(secret=b"x" * 32), ALICE, quota(OF_ALICE, "producer_byte_rate", 1024.0),
        quota((("client-id", None),), "request_percentage", 50.0),
    )  # fmt: skip
    image, writes = commit(ClusterImage.empty("c"), *records)
    assert writes == [
        CreateNode(
            path="/holdfast/scram_secret",
            data=b'{"version":1,"secret":"eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg="}',
        ),
        CreateNode(
            path="/config/users/alice",
            data=f'{{"version":1,"config":{{"SCRAM-SHA-512":"{CREDENTIAL_TEXT}",'
            '"producer_byte_rate":"1024"}}'.encode(),
        ),
        CreateNode(path="/config/clients/<default>", data=b'{"version":1,"config":{"request_percentage":"50.0"}}'),
        changed("users/alice"),
        changed("clients/<default>"),
    ]
    more, writes = commit(image, quota(WITH_CLIENT, "consumer_byte_rate", 5.0))
    assert writes == [
        CreateNode(path="/config/users/alice/clients"),
        CreateNode(path="/config/users/alice/clients/a%20b", data=b'{"version":1,"config":{"consumer_byte_rate":"5"}}'),
        changed("users/alice/clients/a%20b"),
    ]
    gone, writes = commit(
        more,
        rec.RemoveUserScramCredentialRecord(name="alice", mechanism=ScramMechanism.SCRAM_SHA_512),
        quota(OF_ALICE, "producer_byte_rate", None),
    )
    assert writes == [SetNode(path="/config/users/alice", data=b""), changed("users/alice")]
    _, writes = commit(gone, quota(WITH_CLIENT, "consumer_byte_rate", None))
    assert writes == [
        DeleteNode(path="/config/users/alice/clients/a%20b"),
        DeleteNode(path="/config/users/alice/clients"),
        DeleteNode(path="/config/users/alice"),
        changed("users/alice/clients/a%20b"),
    ]


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ({"user": "a/b*~+ é"}, "/config/users/a%2Fb%2A%7E%2B%20%C3%A9"),
        ({"user": "<default>"}, "/config/users/%3Cdefault%3E"),
        ({"user": None, "client-id": None}, "/config/users/<default>/clients/<default>"),
        ({"client-id": ".."}, "/config/clients/%2E%2E"),
        ({"ip": "::1"}, "/config/ips/%3A%3A1"),
    ],
)
def test_an_entity_has_one_path(named: dict[str, str | None], path: str) -> None:
    entity = entity_of(named.items())
    assert znode_users.path_of(entity) == path
    assert znode_users.entity_at(path) == entity


@pytest.mark.parametrize("path", ["/config/topics/t", "/config/users/a/b/c", "/config/users/a b", "/config/users"])
def test_other_nodes_are_no_entities(path: str) -> None:
    assert znode_users.entity_at(path) is None


def tree_with(**nodes: bytes) -> MemoryTree:
    tree = MemoryTree.with_base()
    for path, data in nodes.items():
        tree.write([CreateNode(path=path, data=data)])
    return tree


def test_what_kafka_leaves_behind_is_taken_away() -> None:
    empty = b'{"version":1,"config":{}}'
    tree = tree_with(
        **{
            "/config/users/a": empty, "/config/users/a/clients": b"", "/config/users/a/clients/c": empty,
            "/config/users/b": b"", "/config/users/b/clients": b"",
            "/config/users/b/clients/c": b'{"version":1,"config":{"request_percentage":"1.0E2"}}',
            "/config/ips/1.2.3.4": empty,
        }
    )  # fmt: skip
    reading = read_tree(tree.asked())
    tree.write(reading.repairs)
    assert [path for path in tree.nodes if path.startswith(("/config/users/", "/config/ips/"))] == [
        "/config/users/b", "/config/users/b/clients", "/config/users/b/clients/c",
    ]  # fmt: skip
    of_b = image_of(tree.asked(), "c").quotas.of((("user", "b"), ("client-id", "c")))
    assert dict(of_b) == {"request_percentage": 100.0}


@pytest.mark.parametrize(
    ("path", "config", "text"),
    [
        ("/config/users/a", '"SCRAM-SHA-256":"salt=c2FsdA=="', "config.SCRAM-SHA-256 cannot be read"),
        ("/config/users/a", f'"SCRAM-SHA-256":"{CREDENTIAL_TEXT[:-4]}0"', "has 0 iterations"),
        ("/config/clients/a", '"request_percentage":"nan"', "config.request_percentage is 'nan': expected a number"),
        ("/config/ips/a", '"connection_creation_rate":"x"', "config.connection_creation_rate is 'x'"),
    ],
)
def test_what_cannot_be_read_names_its_node_and_no_key(path: str, config: str, text: str) -> None:
    tree = tree_with(**{path: f'{{"version":1,"config":{{{config}}}}}'.encode()})
    with pytest.raises(MetadataError, match=text) as raised:
        read_tree(tree.asked())
    assert path in str(raised.value)
    assert "c2FsdA" not in str(raised.value)


@pytest.mark.parametrize("data", [b"SCRAM-SHA-256 c2FsdA", b'{"config":{"SCRAM-SHA-256":["c2FsdA"]}}'])
def test_what_is_no_configuration_is_not_shown(data: bytes) -> None:
    with pytest.raises(MetadataError, match="/config/users/a: cannot be read") as raised:
        read_tree(tree_with(**{"/config/users/a": data}).asked())
    assert "c2FsdA" not in str(raised.value)


@pytest.mark.parametrize("data", [b'{"version":1,"secret":"!abc"}', b"abc", b'{"secret":["abc"]}'])
def test_a_secret_that_cannot_be_read_is_not_shown(data: bytes) -> None:
    nodes = {znode_users.SECRET: TreeNode(data=data)}
    with pytest.raises(MetadataError, match="secret cannot be read") as raised:
        read_tree(nodes)
    assert "abc" not in str(raised.value)
