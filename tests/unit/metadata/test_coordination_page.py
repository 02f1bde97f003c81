"""docs/coordination.md names every node and every record, and no other, and their keys as they are written."""

import json
import re
from pathlib import Path
from uuid import UUID

from holdfast.metadata import znode_acls, znode_notices, znode_paths, znode_values
from holdfast.metadata.codec import _ENCODE
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from holdfast.model.listeners import Endpoints

PAGE = (Path(__file__).parents[3] / "docs/coordination.md").read_text()
NOT_A_DECISION = {NoOpRecord, BeginTransactionRecord, EndTransactionRecord}
ENDPOINTS = Endpoints.one("h", 9092)


def rows() -> dict[str, tuple[set[str], set[str], str]]:
    """Path -> keys, keys below ``holdfast``, records; of the table of znodes."""
    table = PAGE.partition("## Znodes and records")[2].partition("\n## ")[0]
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1].startswith("`/"):
            keys, _, ours = cells[2].partition("`holdfast`:")
            for path in re.findall(r"`([^`]+)`", cells[1]):
                found[path] = (set(re.findall(r"`(\w+)`", keys)), set(re.findall(r"`(\w+)`", ours)), cells[5])
    return found


def image() -> ClusterImage:
    records = (
        RegisterBrokerRecord(
            broker_id=1, incarnation_id=UUID(int=1), broker_epoch=0, endpoints=ENDPOINTS.listeners, rack="r"
        ),
        TopicRecord(name="t", topic_id=UUID(int=2)),
        PartitionRecord(
            partition=0, topic_id=UUID(int=2), replicas=(1,), isr=(1,), leader=1, created=1, elr=(1,),
            last_known_elr=(1,), directories=(UUID(int=5),),
        ),
    )  # fmt: skip
    return ClusterImage.empty("c").apply(records, 0)[0]


def test_the_page_has_every_node() -> None:
    constants = {value for name, value in vars(znode_paths).items() if name.isupper() and isinstance(value, str)}
    parents = {
        "/cluster", "/brokers/ids", "/brokers/topics", "/config/topics", "/config/brokers", "/config/changes",
        "/log_dir_event_notification", "/admin/delete_topics", "/holdfast", "/holdfast/brokers", "/holdfast/configs",
    }  # fmt: skip
    elsewhere = {"/brokers/seqid", "/isr_change_notification", "/isr_change_notification/isr_change_"}  # holds no state
    named = {re.sub(r"\*$|/[NT]$", "", path) for path in rows()}
    nodes = {path for path in constants if path.startswith("/")} - parents - elsewhere
    assert nodes <= named
    assert named - nodes <= parents | {
        "/brokers/topics/T/partitions/P/state", "/config/brokers/<default>", "/holdfast/configs/TYPE:NAME",
        "/kafka-acl/TYPE/NAME", "/kafka-acl-extended/prefixed/TYPE/NAME", "/holdfast/acls/PATTERN:TYPE:NAME",
        "/kafka-acl-changes/acl_changes_", "/kafka-acl-extended-changes/acl_changes_",
        "/config/users/NAME", "/config/users/NAME/clients/NAME", "/config/clients/NAME", "/config/ips/NAME",
        "/holdfast/scram_secret",
    }  # fmt: skip
    for path in elsewhere - {"/isr_change_notification/isr_change_"}:
        assert path in PAGE


def test_the_page_has_every_record() -> None:
    told = " ".join(records for _, _, records in rows().values())
    for kind in set(_ENCODE) - NOT_A_DECISION:
        assert kind.__name__.removesuffix("Record") in told, kind


def test_the_keys_are_those_that_are_written() -> None:
    cluster = image()
    [topic] = cluster.topics.values()
    partition = topic.partitions[0]
    me = znode_values.BrokerIdsNode(endpoints=ENDPOINTS, timestamp_ms=1, rack="r", incarnation_id=UUID(int=1))
    log_end = znode_values.LogNode(end_offset=1, controller_id=1, controller_epoch=1)
    claim = znode_values.ControllerNode(broker_id=1, timestamp_ms=1, address=("h", 1), epoch=1)
    written = {
        "/controller": znode_values.controller_node(claim),
        "/brokers/ids/N": znode_values.broker_node(me),
        "/holdfast/brokers/N": znode_values.our_broker_node(cluster.brokers[1]),
        "/brokers/topics/T": znode_values.topic_node(topic),
        "/feature": znode_values.features_node({}),
        "/latest_producer_id_block": znode_values.producer_ids_node(1, 0, 1000),
        "/cluster/id": znode_values.cluster_id_node("c"),
        "/holdfast/metadata_log": znode_values.log_node(log_end),
        "/config/topics/T": znode_values.config_node({"a": "b"}),
        "/kafka-acl/TYPE/NAME": znode_acls.node(()),
        "/config/changes/config_change_*": znode_notices.config_change("topics/t").data,
    }
    table = rows()
    for path, data in written.items():
        found = json.loads(data)
        found.pop("holdfast", None)
        assert table[path][0] == set(found), path
    state = json.loads(znode_values.state_node(partition, 1))
    keys, ours, _ = table["/brokers/topics/T/partitions/P/state"]
    assert keys - {"leader_recovery_state"} == set(state) - {"holdfast"}
    assert ours == set(state["holdfast"])
