"""ZooKeeper's tree as Apache Kafka 3.9.1 wrote it, against what we write: every difference stands in a table.

``tree_*.json`` is the whole tree at a moment: it is read, and what it amounts to is written anew.
``transactions.json`` has every write in order: each change that the image can hold is made by us, too, and its nodes
are compared. A difference without a row fails, and so does a row without a difference. Compared are paths, kinds of
writes and their order, ephemeral or not, keys, values and their types, and whose version is checked in the same multi
(of ours: that the store does so is shown with the store); not the order of keys in JSON. A node without data has null
in Kafka and no bytes here: its readers do not tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.metadata import znode_notices as notices
from holdfast.metadata import znode_paths as paths
from holdfast.metadata import znode_users
from holdfast.metadata import znode_values as values
from holdfast.metadata.image import ClusterImage, partition_record
from holdfast.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.znode_tree import TreeNode, image_of, read_tree
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite, SetNode
from holdfast.metadata.znodes import TreeWriter, base_nodes, claim, cluster_id, registration
from holdfast.model.errors import MetadataError
from holdfast.security.quota_entities import entity_order
from tests.checks.memory_tree import MemoryTree

GOLDEN = Path(__file__).parents[2] / "golden/znodes"
TREES = sorted(path.stem for path in GOLDEN.glob("tree_*.json") if "_00_" not in path.name)
PHASES: dict[str, Any] = json.loads((GOLDEN / "transactions.json").read_text())
BASE_PATHS = [node.path for node in base_nodes()]
LARGE = 1 << 20
NOTHING = "nothing"


class Row(NamedTuple):
    """A difference that stays; ``*`` in any text of it. ``kafka`` and ``ours`` are JSON, or "nothing"."""

    where: str
    path: str
    key: str
    kafka: str
    ours: str
    why: str


OWN_NODE = "decision 22: what Kafka's nodes cannot hold; its readers do not look there"
OWN_KEY = "decision 22: a key that Kafka's readers skip"
BY_BROKERS = "written by a broker there; here by the controller, and all that it writes is checked (H-08)"
TWO_WRITES = "two writes of one change there; here each writes all of the partition"
AGAIN = "the same once more, after a reassignment that moved nothing; here nothing has changed"
NO_HISTORY = "an image does not say that a configuration was there once, or who was given which producer ids"
A_REQUEST = "a request that the controller has not done yet, which is no state"
AT_ONCE = "C19: the controller deletes at once, there is no request to keep for later"
LAST_WRITER = "a tree that is written anew has one writer"
OLD_PROTOCOL = "what only inter.broker.protocol.version below 2.7 writes"
NOT_JSON = "written by hand; reading it is an error that names the node, and the controller deletes it all the same"

TABLE = [
    Row("*", "/holdfast*", "", NOTHING, "*", OWN_NODE),
    Row("*", "/brokers/hosts", "", NOTHING, "*", "KIP-426, which Kafka never got"),
    Row("*", "/kafka-acl*", "", NOTHING, "*", "decision 57: Kafka makes them where it has an authorizer"),
    Row("*", "/brokers/topics/*/state", "holdfast", NOTHING, "*", OWN_KEY),
    # -- trees, written anew from their images
    Row("tree_*", "/brokers/topics/*/state", "controller_epoch", "*", "*", LAST_WRITER),
    Row("tree_*", "/config/changes/*", "", "*", NOTHING, "news, which no image holds"),
    Row("tree_*", "/config/brokers/[23]", "", '{"config": {}, "version": 1}', NOTHING, NO_HISTORY),
    Row("tree_*", "/latest_producer_id_block", "b*", "*", "*", NO_HISTORY),
    Row("tree_0[67]*", "/admin/delete_topics/dd", "", '""', NOTHING, A_REQUEST),
    Row("tree_09*", "/brokers/ids/*", "features", NOTHING, "{}", OLD_PROTOCOL),
    Row("tree_09*", "/brokers/ids/*", "version", "4", "5", OLD_PROTOCOL),
    Row("tree_09*", "/feature", "status", "0", "1", OLD_PROTOCOL),
    Row("tree_09*", "/feature", "version", "1", "2", OLD_PROTOCOL),
    # -- writes
    Row("[ab]_*_create_*", "/config/topics/*", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("[ab]_*_create_*", "/brokers/topics/*", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("b_02*", "/config/topics/late", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("b_02*", "/brokers/topics/late", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_*", "/config/*", "(check)", paths.CONTROLLER, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_*", "/config/brokers/*", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_*", "/config/changes/*", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_07*", "/latest_producer_id_block", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_06*", "/config/clients/*", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_06*", "/config/users/*", "(check)", NOTHING, paths.CONTROLLER_EPOCH, BY_BROKERS),
    Row("a_08*", "/brokers/topics/golden", "", "*", NOTHING, AGAIN),
    Row("a_09*", "/brokers/topics/mv", "", "*", NOTHING, AGAIN),
    Row("a_*", "/brokers/topics/*/state", "", NOTHING, "*", TWO_WRITES),
    Row("a_12*", "/admin/delete_topics/mv", "", '""', NOTHING, AT_ONCE),
    Row("b_04*", "/admin/delete_topics/dd", "", '""', NOTHING, AT_ONCE),
    Row("b_03*", "/log_dir_event_notification/*", "", '"not json"', NOTHING, NOT_JSON),
]  # fmt: skip


class Difference(NamedTuple):
    where: str
    path: str
    key: str
    kafka: str
    ours: str

    def has_row(self, row: Row) -> bool:
        return all(fnmatchcase(mine, pattern) for mine, pattern in zip(self, row[:5], strict=True))


def unexplained(found: Iterable[Difference], used: set[Row]) -> list[Difference]:
    """Those without a row; the rows of the others are added to ``used``."""
    left = []
    for difference in found:
        rows = [row for row in TABLE if difference.has_row(row)]
        used.update(rows[:1])
        if not rows:
            left.append(difference)
    return left


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def said(data: bytes | str | None) -> Any:
    """What a node says."""
    data = (data.decode() if isinstance(data, bytes) else data) or ""
    return json.loads(data) if data.startswith("{") else data


def compared(where: str, path: str, kafka: Any, ours: Any) -> Iterator[Difference]:
    """What two nodes say; values are equal only when their types are, as their JSON is compared."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in sorted({*kafka, *ours}):
            pair = [text(side[key]) if key in side else NOTHING for side in (kafka, ours)]
            if pair[0] != pair[1]:
                yield Difference(where, path, key, *pair)
    elif text(kafka) != text(ours):
        yield Difference(where, path, "", text(kafka), text(ours))


# -- whole trees -----------------------------------------------------------------------------------------------


def golden_tree(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return {path: node for path, node in tree.items() if path != "/" and not path.startswith("/zookeeper")}


def as_read(tree: Mapping[str, Any]) -> dict[str, TreeNode]:
    return {
        path: TreeNode(data=(node["data"] or "").encode(), version=node["version"], czxid=100 + place)
        for place, (path, node) in enumerate(tree.items())
    }


def written_anew(read: Mapping[str, TreeNode]) -> MemoryTree:
    """What the cluster of this tree would have written, were it one of ours."""
    tree = MemoryTree()
    for node in base_nodes():
        tree.write([node])
    if paths.CLUSTER_ID in read:
        tree.write(cluster_id(values.read_cluster_id_node(paths.CLUSTER_ID, read[paths.CLUSTER_ID].data)))
    for path, node in read.items():
        broker = paths.broker_of(path)
        if path.startswith(paths.BROKER_IDS + "/") and broker is not None:
            tree.write(registration(broker, values.read_broker_node(path, node.data)))
    if paths.CONTROLLER in read:
        said_of_it = values.read_controller_node(paths.CONTROLLER, read[paths.CONTROLLER].data)
        epoch = values.read_controller_epoch_node(paths.CONTROLLER_EPOCH, read[paths.CONTROLLER_EPOCH].data)
        tree.write(claim(said_of_it, epoch, 0))
    for multi in TreeWriter().snapshot(image_of(read, "c"), LARGE):
        tree.write(multi.writes)
    return tree


def tree_differences(name: str) -> Iterator[Difference]:
    kafka = golden_tree(name)
    ours = written_anew(as_read(kafka))
    for path in sorted({*kafka, *ours.nodes}):
        if path not in kafka:
            yield Difference(name, path, "", NOTHING, text(said(ours.nodes[path].data)))
        elif path not in ours.nodes:
            yield Difference(name, path, "", text(said(kafka[path]["data"])), NOTHING)
        else:
            yield from compared(name, path, said(kafka[path]["data"]), said(ours.nodes[path].data))
            ephemeral = kafka[path]["ephemeral"], path in ours.ephemeral
            if ephemeral[0] != ephemeral[1]:
                yield Difference(name, path, "(ephemeral)", *map(str, ephemeral))


@pytest.fixture(scope="module")
def used() -> set[Row]:
    return set()


@pytest.mark.parametrize("name", TREES)
def test_R_28_R_02_a_tree_of_kafkas_says_what_we_would_write(name: str, used: set[Row]) -> None:
    assert unexplained(tree_differences(name), used) == []


# -- every write, in order -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A write of Kafka's: ``check``: whose version was checked in the same multi; ``by``: whose session wrote it."""

    op: str
    path: str
    data: str
    ephemeral: bool
    check: str
    by: str


class Recorded:
    """The recorded tree, write by write, as a new controller of ours would read it at any time."""

    def __init__(self) -> None:
        self.nodes: dict[str, TreeNode] = {}
        self.owners: dict[str, str] = {}
        self.zxid = 0
        self.image = ClusterImage.empty("c")

    def begin(self, phase: str) -> None:
        """What happened between the phases is not recorded: the nodes that there are, from the next tree that has
        them, and what those say that the phase changes."""
        known = {path: node for name in reversed(TREES) for path, node in as_read(golden_tree(name)).items()}
        made = set()
        for written in (w for writes in self.transactions(phase, apply=False) for w in writes):
            if written.op == "create":
                made.add(written.path)
            topic = written.path.split("/")[3:4] if written.path.startswith((paths.TOPICS, paths.TOPIC_CONFIGS)) else []
            if written.op == "setData" and topic and paths.topic(topic[0]) not in self.nodes:
                mine = paths.topic(topic[0]), paths.config(2, topic[0])
                self.nodes |= {p: n for p, n in known.items() if p in mine or p.startswith(mine[0] + "/")}
            elif written.op == "setData" and written.path in known and written.path not in made:
                self.nodes.setdefault(written.path, known[written.path])
        for path, data in PHASES[phase]["before"].items():
            self.nodes[path] = TreeNode(data=(data or "").encode())
        self.image = self.read()[0]

    def transactions(self, phase: str, *, apply: bool = True) -> Iterator[list[Written]]:
        """The writes of each transaction that was done, after it was."""
        for tx in PHASES[phase]["zookeeper_transactions"]:
            if tx["op"] == "closeSession" and apply:
                for path in [path for path, owner in self.owners.items() if owner == tx["by"]]:
                    self.owners.pop(path)
                    self.nodes.pop(path, None)
                self.image = self.read()[0]
            if tx.get("failed") or tx["op"] in ("createSession", "closeSession"):
                continue
            ops = tx["ops"] if tx["op"] == "multi" else [tx]
            checks = [op["path"] for op in ops if op["op"] == "check"]
            writes = [
                Written(op=op["op"], path=op["path"], data=op.get("data") or "", ephemeral=bool(op.get("ephemeral")),
                        check=checks[0] if checks else NOTHING, by=tx["by"])
                for op in ops if op["op"] != "check"
            ]  # fmt: skip
            if apply:
                self.zxid += 1
                for write in writes:
                    self.write(write)
            yield writes

    def write(self, write: Written) -> None:
        old = self.nodes.get(write.path)
        if write.op == "delete":
            del self.nodes[write.path]
            return
        if write.op == "create":
            assert old is None or write.ephemeral, f"{write} on {old}"
            old = None
        version, czxid = (0, self.zxid) if old is None else (old.version + 1, old.czxid)
        self.nodes[write.path] = TreeNode(data=write.data.encode(), version=version, czxid=czxid)
        if write.ephemeral:
            self.owners[write.path] = write.by

    def read(self) -> tuple[ClusterImage, bool]:
        """The image, and whether the tree is whole: nothing is half made or half gone."""
        whole = all(write.path.startswith(paths.OURS) for write in read_tree(self.nodes).repairs)
        return image_of(self.nodes, "c"), whole


def records_between(old: ClusterImage, new: ClusterImage, broker: int) -> list[MetadataRecord]:
    """Records that make ``new`` of ``old``; ``broker``: who was given producer ids."""
    made: list[MetadataRecord] = [
        RemoveTopicRecord(topic_id=topic_id) for topic_id in old.topic_names if topic_id not in new.topic_names
    ]
    for image in new.sorted_topics():
        was = old.topics[image.name].partitions if image.topic_id in old.topic_names else None
        if was is None:
            made.append(TopicRecord(name=image.name, topic_id=image.topic_id))
        made += [
            partition_record(image.topic_id, number, partition)
            for number, partition in image.numbered()
            if was is None or was.get(number) != partition
        ]
    for kind, name in {*old.configs, *new.configs}:
        if kind == 4 or name in new.topics:
            before, after = (dict(side.configs.get((kind, name), {})) for side in (old, new))
            for key in sorted({*before, *after}):
                if before.get(key) != after.get(key):
                    made.append(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=after.get(key)))
    made += users_between(old, new)
    if old.next_producer_id != new.next_producer_id:
        made.append(ProducerIdsRecord(broker_id=broker, broker_epoch=0, next_producer_id=new.next_producer_id))
    return made


def users_between(old: ClusterImage, new: ClusterImage) -> Iterator[MetadataRecord]:
    for name, mechanism in sorted({*old.users.credentials, *new.users.credentials}):
        now = new.users.credentials.get((name, mechanism))
        if now is None:
            yield RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        elif now != old.users.credentials.get((name, mechanism)):
            yield UserScramCredentialRecord(name=name, mechanism=mechanism, credential=now)
    for entity in sorted({*old.quotas, *new.quotas}, key=entity_order):
        had, has = old.quotas.of(entity), new.quotas.of(entity)
        for key in sorted({*had, *has}):
            if had.get(key) != has.get(key):
                yield ClientQuotaRecord(entity=entity, key=key, value=has.get(key))


def ours_of(step: list[Written], old: ClusterImage, new: ClusterImage, writer: TreeWriter) -> dict[str, NodeWrite]:
    """What we write for the same change, by path; a sequence has Kafka's number."""
    broker = next((said(w.data)["broker"] for w in step if w.path == paths.PRODUCER_IDS), 0)
    records = records_between(old, new, broker)
    after, _ = old.apply(records, old.next_offset)
    writes = [write for multi in writer.writes(old, after, records, LARGE) for write in multi.writes]
    numbered = {w.path.rstrip("0123456789"): w.path for w in step if w.path.startswith(paths.CONFIG_CHANGE)}
    return {numbered.get(write.path, write.path): write for write in writes}


def direct(write: Written) -> NodeWrite | None:
    """What we write where no image changes; None: nothing."""
    path, data = write.path, write.data.encode()
    for node in (*base_nodes(), *cluster_id(said(write.data)["id"] if path == paths.CLUSTER_ID else "")):
        if node.path == path and write.op == "create":
            return node
    if path.startswith(paths.BROKER_IDS):
        broker = paths.broker_of(path)
        assert broker is not None
        if write.op == "create":
            return CreateNode(path=path, ephemeral=True)
        return registration(broker, values.read_broker_node(path, data))[1]
    if path == paths.CONTROLLER:
        return claim(values.read_controller_node(path, data), 0, 0)[0]
    if path == paths.CONTROLLER_EPOCH:
        return SetNode(path=path, data=values.controller_epoch_node(values.read_controller_epoch_node(path, data)))
    if path == paths.REASSIGN_PARTITIONS and write.op != "delete":
        return SetNode(path=path, data=notices.reassignment(notices.read_reassignment(path, data)))
    if path == paths.PREFERRED_ELECTION and write.op != "delete":
        return SetNode(path=path, data=notices.preferred_election(notices.read_preferred_election(path, data)))
    if path.startswith((paths.LOG_DIR_EVENT, paths.ISR_CHANGE)) and write.op == "create":
        try:
            if path.startswith(paths.ISR_CHANGE):
                return notices.isr_change(notices.read_isr_change(path, data))
            return notices.log_dir_event(notices.read_log_dir_event(path, data))
        except MetadataError as e:
            assert path in str(e) and write.by == "recorder"
    if write.op == "delete":
        return DeleteNode(path=path)
    if write.by == "recorder" and path.startswith(paths.DELETE_TOPICS):
        return CreateNode(path=path)
    return None


def write_differences(phase: str, write: Written, ours: NodeWrite | None, check: str) -> Iterator[Difference]:
    """Between one write of Kafka's and ours."""
    if ours is None:
        yield Difference(phase, write.path, "", text(said(write.data)), NOTHING)
        return
    kind = {CreateNode: "create", SetNode: "setData", DeleteNode: "delete"}[type(ours)]
    if write.by == "recorder":  # a request by hand: what it says is compared
        kind, check = write.op, write.check
    for key, kafka, mine in (
        ("(write)", write.op, kind),
        ("(ephemeral)", str(write.ephemeral), str(isinstance(ours, CreateNode) and ours.ephemeral)),
        ("(check)", write.check, check),
    ):
        if kafka != mine:
            yield Difference(phase, write.path, key, kafka, mine)
    yield from compared(phase, write.path, said(write.data), said(b"" if isinstance(ours, DeleteNode) else ours.data))


def is_state(path: str) -> bool:
    """Whether an image holds what this node says, or the news of it."""
    entity = path.startswith((paths.TOPICS + "/", paths.TOPIC_CONFIGS + "/", paths.BROKER_CONFIGS + "/"))
    entity = entity or path.startswith(tuple(f"{parent}/" for parent in znode_users.LISTED))
    return entity or path in (paths.PRODUCER_IDS, paths.FEATURE) or path.startswith(paths.CONFIG_CHANGE)


def phase_differences(recorded: Recorded, phase: str) -> Iterator[Difference]:
    writer = TreeWriter(read_tree(recorded.nodes).emptied)
    step: list[Written] = []
    old: ClusterImage | None = None

    def compare_step() -> Iterator[Difference]:
        assert old is not None
        ours = ours_of(step, old, recorded.image, writer)
        for write in step:
            yield from write_differences(phase, write, ours.get(write.path), paths.CONTROLLER_EPOCH)
        common = [write.path for write in step if write.path in ours]
        mine = [path for path in ours if path in common]
        if list(dict.fromkeys(common)) != mine:
            yield Difference(phase, common[0], "(order)", " ".join(common), " ".join(mine))
        for path in ours.keys() - {write.path for write in step}:
            write = ours[path]
            yield Difference(phase, path, "", NOTHING, text(said(b"" if isinstance(write, DeleteNode) else write.data)))
        step.clear()

    for writes in recorded.transactions(phase):
        image, whole = recorded.read()
        news = writes[0].path.startswith(paths.CONFIG_CHANGE)
        if step and old is not None and recorded.image != old and not news:
            yield from compare_step()
        if not step:
            old = recorded.image
        is_base = writes[0].op == "create" and writes[0].path in BASE_PATHS
        if is_state(writes[0].path) and not is_base:
            step += writes
            if whole:
                recorded.image = image
                if image == old:
                    yield from compare_step()
        else:
            recorded.image = image
            for write in writes:
                mine = direct(write)
                by_controller = write.op == "delete" or (write.path.startswith("/admin") and not is_base)
                check = paths.CONTROLLER_EPOCH if by_controller else NOTHING
                yield from write_differences(phase, write, mine, check)
    if step:
        yield from compare_step()


@pytest.fixture(scope="module")
def differences() -> dict[str, list[Difference]]:
    recorded = Recorded()
    found = {}
    for phase in PHASES:
        if phase.startswith("c_"):
            continue
        recorded.begin(phase)
        found[phase] = list(phase_differences(recorded, phase))
    return found


@pytest.mark.parametrize("phase", [phase for phase in PHASES if not phase.startswith("c_")])
def test_R_28_what_kafka_writes_we_write(phase: str, differences: dict[str, list[Difference]], used: set[Row]) -> None:
    assert unexplained(differences[phase], used) == []


def test_R_28_the_base_is_made_in_kafkas_order() -> None:
    kafka = [tx["path"] for tx in PHASES["a_00_first_broker_starts"]["zookeeper_transactions"] if tx["op"] == "create"]
    ours = [node.path for node in base_nodes() if not node.path.startswith((paths.OURS, paths.HOSTS, "/kafka-acl"))]
    assert [path for path in kafka if path in ours] == ours
    assert set(kafka) - set(ours) == {node.path for node in cluster_id("c")}


def test_R_28_what_only_an_older_protocol_writes_is_read_and_written_all_the_same() -> None:
    """ISRs that leaders write themselves; the rest of that protocol was never ours."""
    written = [
        op
        for phase in PHASES
        if phase.startswith("c_")
        for op in PHASES[phase]["zookeeper_transactions"]
        if op["op"] == "create" and op["path"].startswith(paths.ISR_CHANGE)
    ]
    assert len(written) == 1
    path, data = written[0]["path"], written[0]["data"].encode()
    ours = notices.isr_change(notices.read_isr_change(path, data))
    assert (ours.path, ours.data, ours.sequence, ours.ephemeral) == (paths.ISR_CHANGE, data, True, False)
    assert paths.sequence_of(path, paths.ISR_CHANGE) == 0 and not written[0]["ephemeral"]


def test_every_row_of_the_table_is_a_difference(differences: dict[str, list[Difference]]) -> None:
    used: set[Row] = set()
    unexplained((d for found in differences.values() for d in found), used)
    unexplained((d for name in TREES for d in tree_differences(name)), used)
    assert [row for row in TABLE if row not in used] == []
