"""An exported image comes into an empty store of either kind: directories, and the model of an ensemble that passes the
contract of the real one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from holdfast.controller.controller import Controller
from holdfast.controller.events import BrokerHeartbeat, BrokerRegister, Registered
from holdfast.controller.settings import ControllerSettings
from holdfast.coordination.importing import anew, bring, refuse_used, with_logs
from holdfast.coordination.migration import MigrationError, MigrationStep, Side, StoreStanding
from holdfast.coordination.rebuild import FoundDir, FoundReplica
from holdfast.coordination.zookeeper_client import Put
from holdfast.metadata import export_file, znode_paths
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.listing import differences, listing
from holdfast.metadata.moved import FILE, Moved
from holdfast.metadata.records import PartitionRecord, ResourceType, TopicRecord
from holdfast.model.errors import HoldfastError, MetadataError, MetadataMovedError
from holdfast.model.fates import LogEnd, ReplicaFate, ReplicaFates
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from tests.checks.two_stores import TO_EMBEDDED, TO_ZOOKEEPER, TwoStores, silent
from tests.contracts.ensembles import ModelEnsemble
from tests.unit.coordination.test_migration import Killed
from tests.unit.metadata.test_listing import IMAGE, T

BOTH = pytest.mark.parametrize("which", [TO_EMBEDDED, TO_ZOOKEEPER])


def imported(stores: TwoStores, which: str, image: ClusterImage, told: object = silent) -> None:
    with stores.sides() as (embedded, ensemble):
        side: Side = embedded if which == TO_EMBEDDED else ensemble
        refuse_used(side.standing(), image.cluster_id, side.name)
        bring(side, image, "x.json", 7, "one", told)  # type: ignore[arg-type]


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_has_all_of_an_image() -> None:
    text = export_file.to_text(IMAGE, 5)
    found = export_file.of_text("F", text)
    assert (listing(found), found.next_offset) == (listing(IMAGE), IMAGE.next_offset)
    document = json.loads(text)
    assert (document["cluster_id"], document["exported_ms"]) == (IMAGE.cluster_id, 5)
    assert document["metadata"]["topic t"] == {"id": str(T)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "x"}, "F: expected a file of `holdfast metadata export`"),
        ({"version": 2}, "F: version 2: expected 1"),
        ({"end_offset": None}, "F: expected cluster_id, end_offset and records"),
        ({"records": ["!"]}, "F: records cannot be read"),
        ({"records": ["AAAA"]}, "F: records cannot be read"),
        ({"records": [7]}, "F: records cannot be read"),
        ({"records": []}, "F: its records and its metadata differ in"),
        ({"metadata": {}}, "F: its records and its metadata differ in"),
        ({"cluster_id": "other"}, r"F: its records and its metadata differ in 1 things, as ! cluster: id is other < >"),
    ],
)
def test_what_is_no_export_is_refused(change: dict[str, object], why: str) -> None:
    document = json.loads(export_file.to_text(IMAGE, 5)) | change
    with pytest.raises(MetadataError, match=why):
        export_file.of_text("F", json.dumps(document))
    with pytest.raises(MetadataError, match="F is no JSON"):
        export_file.of_text("F", "{")


# -- what is made of it ------------------------------------------------------------------------------------------------


def test_anew_has_topics_ids_assignments_and_configs_and_no_history() -> None:
    moving = IMAGE.apply(
        [
            TopicRecord(name="m", topic_id=UUID(int=8)),
            PartitionRecord(
                partition=0, topic_id=UUID(int=8), replicas=(9, 10, 11), isr=(9,), leader=9, leader_epoch=4,
                removing=(9,), adding=(11,),
            ),
        ],
        IMAGE.next_offset,
    )[0]  # fmt: skip
    made = anew(moving, "new")
    assert (made.cluster_id, made.controller_id, len(made.brokers)) == ("new", None, 0)
    assert {t.name: t.topic_id for t in made.topics.values()} == {"t": T, "m": UUID(int=8)}
    assert [(p.replicas, p.isr, p.leader, p.leader_epoch) for t in made.sorted_topics() for _, p in t.numbered()] == [
        ((10, 11), (10, 11), None, 0), ((9, 10), (9, 10), None, 0)
    ]  # fmt: skip
    assert made.configs == moving.configs
    assert (dict(made.features), made.next_producer_id) == (dict(IMAGE.features), 5000)


def replica(broker: int, end: LogEnd, *, topic_id: UUID = T, epoch: int = 2, producer: int = -1) -> FoundDir:
    found = FoundReplica(
        topic_partition=TopicPartition("t", 0), topic_id=topic_id, broker_id=broker, path=f"/d{broker}/t-0", end=end,
        highest_epoch=epoch, highest_producer_id=producer,
    )  # fmt: skip
    return FoundDir(
        path=f"/d{broker}", broker_id=broker, cluster_id=IMAGE.cluster_id, broker_epoch=500, replicas=(found,)
    )


def test_with_logs_those_are_in_sync_whose_logs_go_farthest() -> None:
    """The file says that 9 alone was; since then 10 has led in a later epoch."""
    dirs = [replica(9, LogEnd(2, 100)), replica(10, LogEnd(6, 90), epoch=6, producer=6000)]
    made, doubts = with_logs(IMAGE, dirs)
    partition = made.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((9, 10), (10,), None, 7)
    assert (made.cluster_id, doubts) == (IMAGE.cluster_id, ())
    assert made.next_producer_id > 6000 and made.next_offset > 500
    assert {b.id: b.fenced for b in made.brokers.values()} == {9: True, 10: True}
    both, _ = with_logs(IMAGE, [replica(9, LogEnd(2, 100)), replica(10, LogEnd(2, 100))])
    assert both.topics["t"].partitions[0].isr == (9, 10)


def test_with_logs_a_partition_without_any_is_told() -> None:
    made, doubts = with_logs(IMAGE, [FoundDir(path="/d9", broker_id=9, cluster_id=IMAGE.cluster_id)])
    assert made.topics["t"].partitions[0].isr == (9,)
    assert doubts == (
        "no log directory has a replica of t-0: without records, unless another machine has them",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(replica(9, LogEnd(2, 1)), cluster_id="other"), "/d9 is of cluster other, the file of A{22}"),
        (replica(9, LogEnd(2, 1), topic_id=UUID(int=99)), "/d9/t-0 is of a topic that the file has not .* is older"),
        (replace(replica(9, LogEnd(2, 1)), unreadable={"/d9/t-1": "EIO"}), "/d9/t-1 cannot be read: EIO"),
    ],
)
def test_directories_of_something_else_are_refused(found: FoundDir, why: str) -> None:
    with pytest.raises(MigrationError, match=why):
        with_logs(IMAGE, [found])


# -- into a store ------------------------------------------------------------------------------------------------------


@BOTH
def test_what_was_exported_is_what_the_store_has(stores: TwoStores, which: str) -> None:
    image = anew(export_file.of_text("F", export_file.to_text(IMAGE, 5)), "B" * 22)
    imported(stores, which, image)
    assert differences(listing(image), listing(stores.load(which))) == []
    assert stores.usable() == [which]
    with stores.sides() as (embedded, ensemble):
        side: Side = embedded if which == TO_EMBEDDED else ensemble
        assert side.epoch() >= 7, "a claim is above those of before"
    assert (ResourceType.TOPIC, "t") in stores.load(which).configs


@BOTH
def test_a_store_that_is_used_is_refused_and_left_alone(stores: TwoStores, which: str) -> None:
    stores.put(which, IMAGE)
    before = listing(stores.load(which))
    with pytest.raises(MigrationError, match=f"holds metadata of cluster {IMAGE.cluster_id}: expected an empty one"):
        imported(stores, which, anew(IMAGE, IMAGE.cluster_id))
    assert listing(stores.load(which)) == before


def test_an_empty_store_of_another_cluster_is_refused() -> None:
    with pytest.raises(MigrationError, match="HERE is of cluster d: expected one of cluster c"):
        refuse_used(StoreStanding(cluster_id="d", is_empty=True), "c", "HERE")
    refuse_used(StoreStanding(cluster_id="c", is_empty=True), "c", "HERE")
    left = Moved(to=f"{FILE}x", by="one", is_whole=False)
    refuse_used(StoreStanding(cluster_id="d", moved=left), "c", "HERE")
    with pytest.raises(MigrationError, match="expected an empty one"):
        refuse_used(StoreStanding(cluster_id="c", moved=replace(left, to="the embedded store")), "c", "HERE")


@BOTH
def test_killed_at_any_step_no_broker_uses_a_part_and_another_run_does_it(stores: TwoStores, which: str) -> None:
    image = anew(IMAGE, "B" * 22)
    steps: set[MigrationStep] = set()
    for number in range(1, 50):
        left = [number]

        def told(step: MigrationStep, *_: int, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                steps.add(step)
                raise Killed

        try:
            imported(stores, which, image, told)
            break
        except Killed:
            found = stores.standing()[which]
            if found.moved is not None:
                refusal = found.moved.refusal("HERE")
                assert isinstance(refusal, MetadataMovedError)
                assert "`holdfast metadata import` of the file x.json was not done. Run it again" in str(refusal)
            else:
                assert found.is_empty or number > 6
                if not found.is_empty:
                    break  # it was opened before
    assert steps >= {
        MigrationStep.MARK,
        MigrationStep.EMPTY,
        MigrationStep.FILL,
        MigrationStep.COMPARE,
        MigrationStep.WHOLE,
        MigrationStep.OPEN,
    }
    assert differences(listing(image), listing(stores.load(which))) == []


@BOTH
def test_what_reads_back_other_than_it_was_written_cannot_be_used(
    stores: TwoStores, ensemble: ModelEnsemble, which: str
) -> None:
    def damage(step: MigrationStep, *_: int) -> None:
        if step is not MigrationStep.COMPARE:
            return
        if which == TO_ZOOKEEPER:
            path = znode_paths.state("t", 0)
            client = ensemble.client()
            node = client.get(path)
            assert node is not None
            state = json.loads(node.data) | {"leader_epoch": 77}
            client.write([Put(path=path, data=json.dumps(state).encode())]).result(30)
        else:
            (snapshot,) = (Path(stores.copies[0]) / "__cluster_metadata-0").glob("*.checkpoint")
            data = bytearray(snapshot.read_bytes())
            data[-3] ^= 1
            snapshot.write_bytes(data)

    with pytest.raises(HoldfastError) as caught:
        imported(stores, which, anew(IMAGE, "B" * 22), damage)
    if which == TO_ZOOKEEPER:
        assert "in 1 things, as ! partition t 0: leader_epoch is 0 < > 77: no broker can use it" in str(caught.value)
    assert stores.usable() == []


# -- what a controller makes of it -------------------------------------------------------------------------------------


def test_brokers_that_come_with_nothing_have_lost_nothing_of_what_nobody_ever_led() -> None:
    controller = Controller(anew(IMAGE, "c"), ControllerSettings(min_insync_replicas=1), Random(7))

    def decide(event: object) -> object:
        decision = controller.handle(event, 0)  # type: ignore[arg-type]
        controller.replay(decision.records, controller.image.next_offset)
        return decision.reply

    def come(broker: int) -> tuple[tuple[int, ...], int | None]:
        registered = decide(
            BrokerRegister(
                broker_id=broker, incarnation_id=UUID(int=100 + controller.image.next_offset),
                endpoints=Endpoints.one("h", 9000 + broker), fates=ReplicaFates(rest=ReplicaFate.LOST),
                features=(("metadata version", 0, 7),),
            )
        )  # fmt: skip
        assert isinstance(registered, Registered), registered
        decide(BrokerHeartbeat(broker_id=broker, broker_epoch=registered.broker_epoch))
        partition = controller.image.topics["t"].partitions[0]
        return partition.isr, partition.leader

    isr, leader = come(9)
    assert (9 in isr, leader) == (True, 9)
    isr, leader = come(10)
    assert leader == 9, "it has what was written since"
    isr, leader = come(9)
    assert leader != 9, "now it was led: who comes with nothing has lost something"
