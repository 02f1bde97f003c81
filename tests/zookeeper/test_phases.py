"""Every phase of Apache Kafka 3.9.1 on ZooKeeper (tests/golden/znodes) beside the same one with brokers of ours.

Writes are compared as they stand in the transaction logs of both servers: which nodes are made, written and removed in
a phase, ephemeral or not, by which keys and types of values, whose version is checked in the same multi, and what else
shares it. Where a phase has one course, values are compared too, in the order in which they were written. A difference
without a row in the table fails, and so does a row without a difference. What depends on who was quicker (the ISRs of a
restart) is not in the table: there only paths, kinds and types are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.metadata import znode_paths as paths
from holdfast.metadata.znode_acls import BASE
from holdfast.metadata.znodes import base_nodes
from tests.unit.metadata.test_golden_znodes import NOTHING, Difference, said, text
from tests.zookeeper import phases
from tests.zookeeper.brokers import Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.phase_table import NOT_REPLAYED, TABLE, Row
from tests.zookeeper.reigns import check_reigns
from tests.zookeeper.server import ZooKeeperServer
from tests.zookeeper.transaction_log import Transaction

pytestmark = pytest.mark.system

GOLDEN = Path(__file__).parent.parent / "golden" / "znodes"
RECORDED: dict[str, Any] = json.loads((GOLDEN / "transactions.json").read_text())
REPLAYED = [name for name, _ in phases.PHASES if name in RECORDED]
ONE_COURSE = ("a_02", "a_08", "a_09", "a_10", "a_11", "a_13", "b_02", "b_03")
"""Phases in which the values are compared, too."""
UNIQUE = {"topic_id", "timestamp", "host", "port", "endpoints", "id"}
"""Keys whose values are each cluster's own."""

OF_AN_AUTHORIZER = frozenset(BASE)
"""Kafka makes these when its authorizer starts, and those who were recorded had none; ours are always there."""


class Write(NamedTuple):
    op: str
    path: str
    data: str
    ephemeral: bool
    check: str
    group: tuple[str, ...]
    """All paths that are written at once with it."""


def kafkas(phase: str) -> list[Write]:
    found = []
    for tx in RECORDED[phase]["zookeeper_transactions"]:
        if tx.get("failed") or tx["by"] == "recorder" or tx["op"] in ("createSession", "closeSession"):
            continue
        ops = tx.get("ops", [tx])
        checks = [op["path"] for op in ops if op["op"] == "check"]
        group = tuple(op["path"] for op in ops if op["op"] != "check")
        found += [
            Write(op["op"], op["path"], op.get("data") or "", bool(op.get("ephemeral")),
                  checks[0] if checks else NOTHING, group)
            for op in ops if op["op"] != "check"
        ]  # fmt: skip
    return found


def ours(transactions: Sequence[Transaction], by_hand: int) -> list[Write]:
    found = []
    for tx in transactions:
        if tx.failed or tx.session == by_hand or not tx.ops:
            continue
        checks = [op.path for op in tx.ops if op.op == "check"]
        group = tuple(op.path for op in tx.ops if op.op != "check" and not is_ours(op.path))
        found += [
            Write(op.op, op.path, op.data.decode(), op.ephemeral, checks[0] if checks else NOTHING, group)
            for op in tx.ops if op.op != "check" and not is_ours(op.path)
        ]  # fmt: skip
    return found


def is_ours(path: str) -> bool:
    """What Kafka's tools do not look at, or the chroot."""
    return path.startswith((paths.OURS, paths.HOSTS)) or path == "" or path in OF_AN_AUTHORIZER


def types(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Where in a value which type stands; members of lists and of maps by number are one place."""
    yield at, type(value).__name__
    if isinstance(value, dict):
        for key, member in value.items():
            if at == "" and key == "holdfast":
                continue
            yield from types(member, f"{at}.{'N' if key.isdigit() else key}")
    elif isinstance(value, list):
        for member in value:
            yield from types(member, f"{at}[]")


def steps(writes: Sequence[Write], key: str) -> str:
    """The values of a key in the order in which they were written, each once as long as it stays."""
    found: list[str] = []
    for write in writes:
        value = said(write.data)
        shown = text(value[key]) if isinstance(value, dict) and key in value else NOTHING
        if write.op != "delete" and (not found or found[-1] != shown):
            found.append(shown)
    return " ".join(found)


def shared(writes: Sequence[Write]) -> str:
    """With what else this node is written at once, where that is one thing: a registration, a claim."""
    return " ".join(sorted({path for write in writes for path in write.group}))


def of_one_path(phase: str, path: str, kafka: list[Write], mine: list[Write]) -> Iterator[Difference]:
    if not kafka or not mine:
        yield Difference(phase, path, "", *(" ".join(w.op for w in side) or NOTHING for side in (kafka, mine)))
        return
    for key, pick in (
        ("(write)", lambda w: w.op),
        ("(ephemeral)", lambda w: str(w.ephemeral) if w.op == "create" else ""),
        ("(check)", lambda w: w.check),
    ):
        pair = [" ".join(sorted({pick(w) for w in side} - {""})) for side in (kafka, mine)]
        if pair[0] != pair[1]:
            yield Difference(phase, path, key, *pair)
    if path.startswith((paths.BROKER_IDS + "/", paths.CONTROLLER)) and shared(kafka) != shared(mine):
        yield Difference(phase, path, "(multi)", shared(kafka), shared(mine))
    places: list[dict[str, set[str]]] = [{}, {}]
    for side, writes in zip(places, (kafka, mine), strict=True):
        for write in writes:
            for place, kind in types(said(write.data)) if write.op != "delete" else ():
                side.setdefault(place, set()).add(kind)
    for place in sorted({*places[0], *places[1]}):
        pair = [" ".join(sorted(side.get(place, ()))) or NOTHING for side in places]
        is_key = place.count(".") == 1 and "[" not in place
        if pair[0] != pair[1] and (is_key or NOTHING not in pair):
            yield Difference(phase, path, f"type of {place}", *pair)
    if phase.startswith(ONE_COURSE):
        keys = {key for w in (*kafka, *mine) if isinstance(said(w.data), dict) for key in said(w.data)}
        for key in sorted(keys - UNIQUE - {"holdfast", "controller_epoch"}):
            pair = [steps(kafka, key), steps(mine, key)]
            if pair[0] != pair[1]:
                yield Difference(phase, path, key, *pair)


def differences(phase: str, mine: list[Write]) -> list[Difference]:
    kafka = kafkas(phase)
    everything = sorted({w.path for w in (*kafka, *mine)})
    return [
        difference
        for path in everything
        for difference in of_one_path(
            phase, path, [w for w in kafka if w.path == path], [w for w in mine if w.path == path]
        )
    ]


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phases.Replay]:
    """A cluster that has been through all of them."""
    folder = tmp_path_factory.mktemp("phases")
    with ZooKeeperServer(folder / "zookeeper") as server:
        nodes = ClusterNodes(server, "/phases")
        brokers = Brokers(folder, nodes, settings=phases.SETTINGS)
        try:
            made = phases.Replay(brokers)
            for name, phase in phases.PHASES:
                made.do(name, phase)
            yield made
        finally:
            brokers.end()
            nodes.close()


@pytest.fixture(scope="module")
def used() -> set[Row]:
    return set()


@pytest.mark.parametrize("phase", REPLAYED)
def test_R_28_R_33_R_43_a_phase_writes_what_kafka_wrote(phase: str, replay: phases.Replay, used: set[Row]) -> None:
    left = []
    for difference in differences(phase, ours(replay.writes[phase], replay.by_hand)):
        row = next((row for row in TABLE if row.holds(difference)), None)
        if row is None:
            left.append(difference)
        else:
            used.add(row)
    assert left == [], "\n".join(map(str, left))


def test_every_phase_is_replayed_or_has_a_reason() -> None:
    assert sorted([*REPLAYED, *NOT_REPLAYED]) == sorted(RECORDED)


def test_every_row_of_the_table_has_a_difference(replay: phases.Replay, used: set[Row]) -> None:
    """After the tests before it."""
    assert [row for row in TABLE if row not in used and not row.sometimes] == []


def test_R_28_a_cluster_begins_in_kafkas_order(replay: phases.Replay) -> None:
    """Each node of the base, the registration, the epoch and the claim."""
    base = {node.path for node in base_nodes()} | {"/cluster", "/cluster/id", "/brokers/ids/1", "/controller"}
    order = [w.path for w in ours(replay.writes[phases.FIRST], replay.by_hand) if w.path in base]
    recorded = [w.path for w in kafkas(phases.FIRST) if w.path in base]
    assert list(dict.fromkeys(order)) == list(dict.fromkeys(recorded))


def test_K112_90_K112_20_K112_22_K112_23_notes_of_failed_directories_have_kafkas_names(replay: phases.Replay) -> None:
    """Made by the broker, removed by the controller; the numbers go on from one phase to the next."""
    prefix = paths.LOG_DIR_EVENT
    recorded, made = (
        [op["path"] for phase in REPLAYED for tx in RECORDED[phase]["zookeeper_transactions"]
         for op in tx.get("ops", [tx]) if op.get("path", "").startswith(prefix) and op["op"] == "create"],
        [op.path for phase in REPLAYED for tx in replay.writes[phase] for op in tx.ops
         if op.path.startswith(prefix) and op.op == "create"],
    )  # fmt: skip
    assert made == recorded
    died = [op for tx in replay.writes["b_01_log_dir_dies_on_broker_1"] for op in tx.ops if op.path in made]
    assert [(op.op, op.data.decode(), op.ephemeral) for op in died] == [
        ("create", '{"version":1,"broker":1,"event":1}', False),
        ("delete", "", False),
    ]


def test_K112_100_nothing_that_kip_112_struck_out_is_ever_written(replay: phases.Replay) -> None:
    """Also not while a log directory is bad and topics with offline replicas are deleted: no node for the controller's
    state (C14), and nothing beside Kafka's nodes and ours."""
    written = {op.path for tx in replay.log() for op in tx.ops if op.op == "create"}
    assert not [path for path in written if "managed_state" in path]
    roots = {path.split("/")[1] for path in written if path}
    assert roots <= {path.split("/")[1] for path in (*paths.BASE, *paths.OUR_BASE, *BASE)} | {
        "cluster", "controller", "controller_epoch", "feature",
    }  # fmt: skip


def test_H_08_one_broker_at_a_time_is_the_controller_in_the_transaction_log(replay: phases.Replay) -> None:
    """Of every epoch there is one session, and each of its writes checks the version that its claim made."""
    found = check_reigns(replay.log(), by_hand=frozenset({replay.by_hand}))
    assert len(found) >= 4 and found == sorted(found)
