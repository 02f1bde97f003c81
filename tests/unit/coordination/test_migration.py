"""The steps of a migration, killed at each of them, and what a run does with what it finds: real directories, and the
model of an ensemble that passes the contract of the real one (tests/zookeeper/test_migration.py has a real one)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.coordination import notes
from holdfast.coordination.migration import DifferentError, MigrationError, MigrationStep, StoreStanding, Way, decide
from holdfast.coordination.zookeeper_client import Create, Delete, Put
from holdfast.metadata import host_records, znode_paths
from holdfast.metadata.broker_ids import HostEntry
from holdfast.metadata.listing import differences, listing
from holdfast.metadata.moved import Moved
from holdfast.metadata.records import ControllerClaimRecord
from holdfast.metadata.znode_hosts import with_hosts
from holdfast.model.errors import HoldfastError, KafkaStorageError, MetadataError, MetadataMovedError
from tests.checks.two_stores import TO_EMBEDDED, TO_ZOOKEEPER, TwoStores
from tests.contracts.ensembles import ModelEnsemble
from tests.contracts.test_metadata_store import ONE, TOPIC_RECORDS, TWO, Reign
from tests.unit.metadata.test_listing import IMAGE

READY = StoreStanding(cluster_id="c")
EMPTY = StoreStanding(is_empty=True)
OTHER = {TO_EMBEDDED: TO_ZOOKEEPER, TO_ZOOKEEPER: TO_EMBEDDED}
BOTH_WAYS = pytest.mark.parametrize("to", [TO_ZOOKEEPER, TO_EMBEDDED])


def moved(*, is_whole: bool, by: str = "one") -> StoreStanding:
    return StoreStanding(cluster_id="c", moved=Moved(to="THERE", by=by, is_whole=is_whole))


@pytest.mark.parametrize(
    ("source", "target", "way"),
    [
        (READY, EMPTY, Way.WHOLE),
        (READY, moved(is_whole=False), Way.WHOLE),
        (READY, moved(is_whole=True), Way.WHOLE),
        (READY, replace(EMPTY, cluster_id="c"), Way.WHOLE),
        (moved(is_whole=True), moved(is_whole=True), Way.LAST_STEP),
        (moved(is_whole=True), READY, Way.NOTHING),
    ],
)
def test_what_is_left_to_do_follows_from_the_marks(source: StoreStanding, target: StoreStanding, way: Way) -> None:
    assert decide(source, target, "SOURCE", "TARGET") is way


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        (EMPTY, EMPTY, "SOURCE holds no metadata of a cluster"),
        (READY, READY, "SOURCE and TARGET both hold metadata of cluster c, and neither says"),
        (READY, replace(READY, cluster_id="d"), "TARGET is of cluster d: expected an empty one, or one of cluster c"),
        (READY, replace(EMPTY, cluster_id="d"), "TARGET is of cluster d"),
        (moved(is_whole=False), READY, "SOURCE holds a part of the metadata only: all of it is in THERE"),
        (moved(is_whole=True), EMPTY, "SOURCE was left: this cluster's metadata is in THERE, and not in TARGET"),
        (moved(is_whole=True), moved(is_whole=False), "SOURCE was left"),
        (moved(is_whole=True), moved(is_whole=True, by="another"), "SOURCE was left"),
    ],
)
def test_a_run_that_would_guess_is_refused(source: StoreStanding, target: StoreStanding, why: str) -> None:
    with pytest.raises(MigrationError, match=why):
        decide(source, target, "SOURCE", "TARGET")


class Killed(BaseException):
    """kill -9, as far as this process goes: nothing behind it is done."""


class KillAt:
    """Ends the run when it is told for the ``number``-th time."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.step: MigrationStep | None = None

    def __call__(self, step: MigrationStep, done: int, of: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.step = step
            raise Killed


def killed_runs(stores: TwoStores, to: str) -> Iterator[MigrationStep]:
    """Runs that are killed, each one step later than the one before, until one comes to its end."""
    for number in range(1, 50):
        kill = KillAt(number)
        try:
            stores.migrate(to, kill, f"run-{number}")
        except Killed:
            assert kill.step is not None
            yield kill.step
        else:
            return
    raise AssertionError("it never came to its end")


@BOTH_WAYS
def test_killed_at_any_step_never_both_can_be_used_and_the_next_run_ends_it(stores: TwoStores, to: str) -> None:
    stores.put(OTHER[to], IMAGE)
    seen = set()
    for step in killed_runs(stores, to):
        seen.add(step)
        # Behind the last step it is done, and the next run, which finds that, ends the loop.
        assert stores.usable() == {MigrationStep.OPEN: [], MigrationStep.DONE: [to]}.get(step, [OTHER[to]]), step
    assert seen >= {
        MigrationStep.MARK,
        MigrationStep.EMPTY,
        MigrationStep.FILL,
        MigrationStep.COMPARE,
        MigrationStep.WHOLE,
        MigrationStep.LEAVE,
        MigrationStep.OPEN,
    }
    assert stores.usable() == [to]
    assert stores.load(to) == IMAGE


@BOTH_WAYS
@pytest.mark.parametrize("number", range(1, 12))
def test_killed_at_any_step_it_can_be_taken_back(stores: TwoStores, to: str, number: int) -> None:
    stores.put(OTHER[to], IMAGE)
    kill = KillAt(number)
    try:
        stores.migrate(to, kill)
    except Killed:
        if kill.step is not MigrationStep.OPEN and kill.step is not MigrationStep.DONE:
            assert stores.usable() == [OTHER[to]], "the source goes on as if nothing had been"
            if (
                kill.step is MigrationStep.LEAVE
            ):  # the target is whole, and marked: where one would go back to is in use
                assert stores.migrate(OTHER[to])[0] is Way.NOTHING
            else:
                with pytest.raises(MigrationError, match=r"holds a part|holds no metadata"):
                    stores.migrate(OTHER[to])
            assert stores.usable() == [OTHER[to]]
            return
    way, image = stores.migrate(OTHER[to], migration_id="back")
    assert way is (Way.LAST_STEP if kill.step is MigrationStep.OPEN else Way.WHOLE)
    assert image == IMAGE
    assert stores.usable() == [OTHER[to]]


@BOTH_WAYS
def test_what_the_source_decided_since_a_killed_run_is_in_the_next_one(stores: TwoStores, to: str) -> None:
    stores.put(OTHER[to], IMAGE)
    with pytest.raises(Killed):
        stores.migrate(to, KillAt(6))
    later, _ = IMAGE.apply([ControllerClaimRecord(controller_epoch=9, broker_id=1, host="h", port=1)], 10)
    stores.put(OTHER[to], later)
    assert stores.migrate(to)[1] == later
    assert stores.load(to) == later


def test_epochs_and_offsets_go_on_over_both_moves(stores: TwoStores) -> None:
    store = stores.store()
    first = Reign(store, ONE)
    first.commit(*TOPIC_RECORDS)
    store.close()
    end_offset, epochs = first.image.next_offset, [first.epoch]
    for to in (TO_ZOOKEEPER, TO_EMBEDDED, TO_ZOOKEEPER, TO_EMBEDDED):
        image = stores.migrate(to, migration_id=f"{to} {len(epochs)}")[1]
        assert image == first.image
        with stores.sides() as (embedded, ensemble):
            epochs.append((ensemble if to == TO_ZOOKEEPER else embedded).epoch())
    assert epochs == sorted(set(epochs)), "a claim's epoch is one more than this: above all before it"
    store = stores.store(2)
    second = Reign(store, TWO)
    assert second.epoch > epochs[-1]
    assert second.loaded.base_offset + len(second.loaded.records) == end_offset + 1
    assert differences(listing(replace(second.image, controller_id=1, controller_epoch=1, offset=end_offset - 1)),
                       listing(first.image)) == []  # fmt: skip
    store.close()


@BOTH_WAYS
def test_what_reads_back_other_than_it_was_written_is_named_and_nothing_is_moved(
    stores: TwoStores, ensemble: ModelEnsemble, to: str
) -> None:
    stores.put(OTHER[to], IMAGE)

    def damage(step: MigrationStep, done: int, of: int) -> None:
        if step is not MigrationStep.COMPARE:
            return
        if to == TO_ZOOKEEPER:
            path = znode_paths.state("t", 0)
            client = ensemble.client()
            node = client.get(path)
            assert node is not None
            state = json.loads(node.data) | {"leader_epoch": 77}
            client.write([Put(path=path, data=json.dumps(state).encode())]).result(30)
        else:
            log = Path(stores.copies[0]) / "__cluster_metadata-0"
            (snapshot,) = log.glob("*.checkpoint")
            data = bytearray(snapshot.read_bytes())
            data[-3] ^= 1
            snapshot.write_bytes(data)

    with pytest.raises(HoldfastError) as caught:
        stores.migrate(to, damage)
    if to == TO_ZOOKEEPER:
        assert isinstance(caught.value, DifferentError)
        assert [each.name for each in caught.value.differences] == ["partition t 0"]
    assert stores.usable() == [OTHER[to]]
    assert stores.migrate(to)[1] == IMAGE


def test_brokers_with_the_old_properties_are_refused_with_a_line_that_says_where_the_metadata_is(
    stores: TwoStores,
) -> None:
    stores.put(TO_EMBEDDED, IMAGE)
    stores.migrate(TO_ZOOKEEPER)
    with pytest.raises(MetadataMovedError, match=r"metadata\.log\.dirs .*was left.* to the ZooKeeper store ENSEMBLE"):
        stores.store().cluster_id()


def test_a_copy_that_was_away_during_the_move_does_not_count_when_it_is_back(stores: TwoStores, tmp_path: Path) -> None:
    """Its own note says that it is good; the directories that keep notes say more."""
    stores.put(TO_EMBEDDED, IMAGE)
    kept = tmp_path / "kept"
    shutil.copytree(stores.copies[0], kept)
    stores.migrate(TO_ZOOKEEPER)
    for path in stores.copies:
        shutil.rmtree(path)
        shutil.copytree(kept, path)
    store = stores.store()
    assert store.cluster_id() == IMAGE.cluster_id
    with pytest.raises(MetadataMovedError, match="the ZooKeeper store ENSEMBLE"):
        store.claim(ONE)
    assert "the ZooKeeper store ENSEMBLE" in str(store.judge())
    store.close()


def test_a_good_copy_that_is_missing_is_waited_for(stores: TwoStores) -> None:
    stores.put(TO_EMBEDDED, IMAGE)
    shutil.rmtree(stores.copies[1])
    with pytest.raises(KafkaStorageError, match=r"meta-2 is missing, a good copy"):
        stores.migrate(TO_ZOOKEEPER)
    assert stores.usable() == [TO_EMBEDDED]


def test_a_running_broker_on_either_store_is_named(stores: TwoStores, ensemble: ModelEnsemble) -> None:
    store = stores.store()
    Reign(store, ONE)
    with pytest.raises(KafkaStorageError, match=r"meta-1/lock is locked: a broker of this cluster runs"):
        stores.migrate(TO_ZOOKEEPER)
    store.close()
    client = ensemble.client()
    for path in ("/brokers", "/brokers/ids"):
        client.write([Create(path=path)]).result(30)
    for broker in (10, 9):
        client.write([Create(path=f"/brokers/ids/{broker}", ephemeral=True)]).result(30)
    client.write([Create(path="/controller", data=b'{"version":2,"brokerid":9,"timestamp":"1"}')]).result(30)
    with pytest.raises(MigrationError, match=r"/controller is there, of broker 9; /brokers/ids has 9, 10\. Stop all"):
        stores.migrate(TO_ZOOKEEPER)


def test_a_controller_that_came_and_went_while_its_tree_was_read_keeps_it(
    stores: TwoStores, ensemble: ModelEnsemble
) -> None:
    stores.put(TO_ZOOKEEPER, IMAGE)

    def claim(step: MigrationStep, done: int, of: int) -> None:
        if step is MigrationStep.LEAVE:
            ensemble.client().write([Put(path=znode_paths.CONTROLLER_EPOCH, data=b"99")]).result(30)

    with pytest.raises(MigrationError, match="A broker, or another migration, came to the ZooKeeper store ENSEMBLE"):
        stores.migrate(TO_EMBEDDED, claim)
    assert stores.usable() == [TO_ZOOKEEPER]


@BOTH_WAYS
def test_K426_13_which_host_has_which_id_goes_along_and_back(stores: TwoStores, to: str) -> None:
    """Also an id that somebody has taken and not come with, and how many new ones there were."""
    hosts = {
        "a": HostEntry(broker_id=10),
        "/data/d 1": HostEntry(broker_id=1003, claimant=UUID(int=3), address="h:1"),
        "b": HostEntry(broker_id=1004, claimant=UUID(int=4)),
    }
    image = with_hosts(IMAGE, hosts, 4)
    stores.put(OTHER[to], image)
    for number, target in enumerate((to, OTHER[to], to)):
        assert stores.migrate(target, migration_id=f"{number}")[1] == image
        assert stores.load(target) == image
    found = stores.load(to)
    assert (host_records.hosts(found), host_records.sequence(found)) == (hosts, 4)


def test_K426_13_two_hosts_that_await_one_id_are_named(stores: TwoStores) -> None:
    hosts = {name: HostEntry(broker_id=7, claimant=UUID(int=1)) for name in ("a", "b")}
    stores.put(TO_EMBEDDED, with_hosts(IMAGE, hosts, 0))
    with pytest.raises(MetadataError, match="Hosts a and b both await broker id 7: expected one"):
        stores.migrate(TO_ZOOKEEPER)
    assert stores.usable() == [TO_EMBEDDED]


def test_K426_17_an_id_that_was_taken_while_its_tree_was_read_is_not_left_behind(
    stores: TwoStores, ensemble: ModelEnsemble
) -> None:
    stores.put(TO_ZOOKEEPER, IMAGE)

    def take(step: MigrationStep, done: int, of: int) -> None:
        if step is MigrationStep.LEAVE:
            ensemble.client().write([Put(path=znode_paths.CLAIMED_IDS, data=b"")]).result(30)

    with pytest.raises(MigrationError, match="A broker, or another migration, came to the ZooKeeper store ENSEMBLE"):
        stores.migrate(TO_EMBEDDED, take)
    assert stores.usable() == [TO_ZOOKEEPER]


def test_two_migrations_to_one_tree_do_not_mix(stores: TwoStores, ensemble: ModelEnsemble) -> None:
    stores.put(TO_EMBEDDED, IMAGE)

    def other(step: MigrationStep, done: int, of: int) -> None:
        if step is MigrationStep.FILL:
            mark = Moved(to="ELSEWHERE", by="two", is_whole=False)
            ensemble.client().write([Put(path=znode_paths.MOVED, data=json.dumps(mark.values()).encode())]).result(30)

    with pytest.raises(MigrationError, match="another migration, or somebody else, writes there"):
        stores.migrate(TO_ZOOKEEPER, other)
    assert stores.usable() == [TO_EMBEDDED]


def test_a_tree_of_another_cluster_or_of_Kafkas_is_no_target(stores: TwoStores, ensemble: ModelEnsemble) -> None:
    stores.put(TO_EMBEDDED, IMAGE)
    stores.put(TO_ZOOKEEPER, replace(IMAGE, cluster_id="B" * 21 + "A"))
    with pytest.raises(MigrationError, match=r"ENSEMBLE is of cluster B{21}A: expected an empty one"):
        stores.migrate(TO_ZOOKEEPER)
    client = ensemble.client()
    client.write([Put(path=znode_paths.METADATA_LOG, data=b"")]).result(30)
    with pytest.raises(MigrationError, match=r"has topics and no /holdfast/metadata_log: Kafka's own"):
        stores.migrate(TO_ZOOKEEPER)


def test_what_else_is_in_the_tree_stays(stores: TwoStores, ensemble: ModelEnsemble) -> None:
    stores.put(TO_ZOOKEEPER, IMAGE)
    client = ensemble.client()
    client.write([Create(path="/consumers/somebody", data=b"x")]).result(30)
    client.write([Create(path="/admin/alice", data=b"y")]).result(30)
    stores.migrate(TO_EMBEDDED)
    stores.migrate(TO_ZOOKEEPER)
    assert client.get("/consumers/somebody") is not None
    assert client.get("/admin/alice") is not None


def test_a_left_tree_can_be_given_back_by_hand(stores: TwoStores, ensemble: ModelEnsemble) -> None:
    """The way when the other store is gone for good."""
    stores.put(TO_ZOOKEEPER, IMAGE)
    stores.migrate(TO_EMBEDDED)
    ensemble.client().write([Delete(path=znode_paths.MOVED)]).result(30)
    assert sorted(stores.usable()) == [TO_EMBEDDED, TO_ZOOKEEPER]
    assert stores.load(TO_ZOOKEEPER) == IMAGE


def test_a_copy_that_was_left_out_before_the_move_is_not_good_after_it(stores: TwoStores) -> None:
    """A run that only takes the last step writes the source's mark once more."""
    stores.put(TO_EMBEDDED, IMAGE)
    note = notes.newest(stores.files, stores.copies[0])
    assert note is not None
    good = {copy_id: path for copy_id, path in note.copies.items() if path == stores.copies[0]}
    fewer = replace(note, number=note.number + 1, good=tuple(good), copies=good)
    for path in (*stores.copies, *stores.log_dirs):
        notes.write(stores.files, path, fewer)

    def kill(step: MigrationStep, done: int, of: int) -> None:
        if step is MigrationStep.OPEN:
            raise Killed

    with pytest.raises(Killed):
        stores.migrate(TO_ZOOKEEPER, kill)
    assert stores.migrate(TO_ZOOKEEPER)[0] is Way.LAST_STEP
    left = notes.newest(stores.files, stores.copies[1])
    assert left is not None and left.moved is not None
    assert (left.good, dict(left.copies)) == ((), good)
