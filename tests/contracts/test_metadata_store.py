"""What every metadata store must do; each store of ours runs through all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.coordination.embedded import EmbeddedStore
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ControllerClaimRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.store import Asked, Candidate, InMemoryStore, MetadataStore, SharedMemory
from holdfast.model.errors import FencedControllerError, KafkaStorageError
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from holdfast.testing import wait_for
from tests.zookeeper.cluster_nodes import ClusterNodes

ONE = Candidate(broker_id=1, host="one", port=9001)
TWO = Candidate(broker_id=2, host="two", port=9002)
TOPIC = UUID(int=7)
TOPIC_RECORDS: tuple[MetadataRecord, ...] = (
    TopicRecord(name="t", topic_id=TOPIC),
    PartitionRecord(partition=0, topic_id=TOPIC, replicas=(1, 2), isr=(1, 2), leader=1),
)
ACLS = tuple(
    AclBinding(ResourcePattern(ResourceKind.GROUP, name, pattern), AclEntry("User:a", "*", operation, Permission.DENY))
    for name, pattern, operation in (
        ("t", PatternKind.LITERAL, Operation.READ),
        ("a/b", PatternKind.LITERAL, Operation.READ),
        ("t", PatternKind.LITERAL, Operation.WRITE),
        ("t", PatternKind.PREFIXED, Operation.WRITE),
        ("..", PatternKind.PREFIXED, Operation.ALL),
        ("*", PatternKind.LITERAL, Operation.ALL),
    )
)
USER_RECORDS: tuple[MetadataRecord, ...] = (
    ScramSecretRecord(secret=b"s" * 32),
    *(
        UserScramCredentialRecord(
            name="a/b", mechanism=mechanism, credential=ScramCredential(b"salt", b"stored", b"server", 4096)
        )
        for mechanism in ScramMechanism
    ),
    ClientQuotaRecord(entity=(("user", "a/b"),), key="producer_byte_rate", value=1024.0),
    ClientQuotaRecord(entity=(("user", "c"), ("client-id", None)), key="request_percentage", value=12.5),
    ClientQuotaRecord(entity=(("ip", None),), key="connection_creation_rate", value=3.0),
)


@pytest.fixture(params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.system)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], MetadataStore]]:
    """Makes handles on one store, as several brokers have them."""
    makers: dict[str, Callable[[], MetadataStore]] = {}
    if request.param == "zookeeper":
        ensemble: ClusterNodes = request.getfixturevalue("cluster_nodes")
        makers["zookeeper"] = ensemble.store
    shared = SharedMemory()
    makers["memory"] = lambda: InMemoryStore(shared)
    makers["embedded"] = lambda: EmbeddedStore(str(tmp_path / "meta"))
    opened: list[MetadataStore] = []

    def make() -> MetadataStore:
        store = makers[request.param]()
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


Open = Callable[[], MetadataStore]


class Heard:
    """What a store has told (ReignNews)."""

    def __init__(self) -> None:
        self.lost_by: list[str] = []
        self.gone: list[tuple[int, int]] = []
        self.failed: list[int] = []
        self.asked_for: list[tuple[Asked, Callable[[], None]]] = []

    def lost(self, reason: str) -> None:
        self.lost_by.append(reason)

    def broker_gone(self, broker_id: int, broker_epoch: int) -> None:
        self.gone.append((broker_id, broker_epoch))

    def log_dir_failed(self, broker_id: int) -> None:
        self.failed.append(broker_id)

    def asked(self, asked: Asked, decided: Callable[[], None]) -> None:
        self.asked_for.append((asked, decided))


class Reign:
    """A claim and the image that goes with it, as a controller has them."""

    def __init__(self, store: MetadataStore, candidate: Candidate) -> None:
        self.store = store
        self.heard = Heard()
        self.claim = store.claim(candidate, self.heard)
        self.loaded = store.load(self.claim)
        self.image, _ = ClusterImage.empty(store.cluster_id()).apply(self.loaded.records, self.loaded.base_offset)

    @property
    def epoch(self) -> int:
        return self.claim.epoch

    def commit(self, *records: MetadataRecord, fence: int | None = None) -> int:
        after, _ = self.image.apply(records, self.image.next_offset)
        fence = self.epoch if fence is None else fence
        base_offset = self.store.commit(records, fence, before=self.image, after=after)
        self.image = after
        return base_offset


def feature(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="f", level=level)


def test_all_brokers_see_one_cluster_id(open_store: Open) -> None:
    first = open_store().cluster_id()
    assert first
    assert open_store().cluster_id() == first
    assert len(first) == 22


def test_a_claim_is_in_the_log_before_anything_else(open_store: Open) -> None:
    store = open_store()
    claim = store.claim(ONE)
    loaded = store.load(claim)
    assert list(loaded.records) == [
        ControllerClaimRecord(controller_epoch=claim.epoch, broker_id=1, host="one", port=9001)
    ]
    assert (loaded.base_offset, loaded.end_offset) == (0, 1)


def test_commits_are_contiguous_and_loaded_by_the_next_controller(open_store: Open) -> None:
    store, other = open_store(), open_store()
    first = Reign(store, ONE)
    assert first.commit(*TOPIC_RECORDS) == 1
    assert first.commit(feature(1)) == 3
    store.resign()
    second = Reign(other, TWO)
    assert second.epoch > first.epoch
    assert second.loaded.end_offset == 5
    assert second.image.topics == first.image.topics
    assert dict(second.image.features) == {"f": 1}
    assert list(second.loaded.records)[-1] == ControllerClaimRecord(
        controller_epoch=second.epoch, broker_id=2, host="two", port=9002
    )


def test_H_08_nothing_is_written_without_the_claim(open_store: Open) -> None:
    store, other = open_store(), open_store()
    empty = ClusterImage.empty("c")
    with pytest.raises(FencedControllerError):
        store.commit((), 1, before=empty, after=empty)
    first = Reign(store, ONE)
    store.resign()
    with pytest.raises(FencedControllerError):
        first.commit(*TOPIC_RECORDS)
    second = Reign(other, TWO)
    with pytest.raises(FencedControllerError):
        first.commit(*TOPIC_RECORDS, fence=second.epoch)
    with pytest.raises(FencedControllerError):
        second.commit(*TOPIC_RECORDS, fence=first.epoch)
    assert second.loaded.end_offset == 2
    assert second.commit(feature(1)) == 2


def test_anybody_may_ask_who_the_controller_is(open_store: Open) -> None:
    store, other = open_store(), open_store()
    assert other.active() is None
    claim = store.claim(ONE)
    location = wait_for(other.active, "the news of the claim")
    assert (location.broker_id, location.host, location.port, location.epoch) == (1, "one", 9001, claim.epoch)
    store.resign()
    wait_for(lambda: other.active() is None, "the news of its end")
    again = other.claim(TWO)
    found = wait_for(store.active, "the news of the other claim")
    assert (found.broker_id, found.epoch) == (2, again.epoch)


def test_epochs_grow_over_reigns_of_the_same_broker(open_store: Open) -> None:
    store = open_store()
    epochs = []
    for _ in range(3):
        epochs.append(store.claim(ONE).epoch)
        store.resign()
    assert epochs == sorted(set(epochs))


def test_a_snapshot_gives_the_same_image_and_offsets_go_on(open_store: Open) -> None:
    store, other = open_store(), open_store()
    first = Reign(store, ONE)
    first.commit(*TOPIC_RECORDS)
    topics = first.image.topics
    store.snapshot(first.image, first.epoch)
    assert not store.wants_snapshot
    assert first.commit(feature(1)) == 3
    store.resign()
    second = Reign(other, TWO)
    assert second.loaded.end_offset == second.image.next_offset == 5
    assert second.image.topics == topics
    assert dict(second.image.features) == {"f": 1}


@pytest.mark.parametrize("snapshot", [False, True])
def test_users_and_quotas_are_what_the_next_controller_finds(open_store: Open, snapshot: bool) -> None:
    store, other = open_store(), open_store()
    first = Reign(store, ONE)
    first.commit(*USER_RECORDS)
    first.commit(RemoveUserScramCredentialRecord(name="a/b", mechanism=ScramMechanism.SCRAM_SHA_256))
    first.commit(ClientQuotaRecord(entity=(("ip", None),), key="connection_creation_rate", value=None))
    if snapshot:
        store.snapshot(first.image, first.epoch)
    store.resign()
    second = Reign(other, TWO)
    assert second.image.users == first.image.users
    assert second.image.quotas == first.image.quotas
    assert (len(second.image.users.credentials), len(second.image.quotas)) == (1, 2)
    assert second.image.users.secret == b"s" * 32


@pytest.mark.parametrize("snapshot", [False, True])
def test_access_control_entries_are_what_the_next_controller_finds(open_store: Open, snapshot: bool) -> None:
    store, other = open_store(), open_store()
    first = Reign(store, ONE)
    first.commit(*(AccessControlEntryRecord(id=acl.id(), acl=acl) for acl in ACLS))
    first.commit(RemoveAccessControlEntryRecord(id=ACLS[0].id()))
    first.commit(RemoveAccessControlEntryRecord(id=ACLS[1].id()), feature(1))
    if snapshot:
        store.snapshot(first.image, first.epoch)
    store.resign()
    second = Reign(other, TWO)
    assert second.image.acls == first.image.acls
    assert set(second.image.acls) == set(ACLS[2:])
    second.commit(RemoveAccessControlEntryRecord(id=ACLS[2].id()))
    other.resign()
    assert set(Reign(store, ONE).image.acls) == set(ACLS[3:])


def test_a_snapshot_needs_the_claim(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(FencedControllerError):
        store.snapshot(ClusterImage.empty("c"), 1)


def test_a_closed_store_claims_no_more(open_store: Open) -> None:
    store = open_store()
    store.close()
    with pytest.raises(FencedControllerError):
        store.claim(ONE)


def test_H_08_who_gives_the_claim_back_hears_nothing_of_its_end(open_store: Open) -> None:
    store, other = open_store(), open_store()
    first = Reign(store, ONE)
    store.resign()
    second = Reign(other, TWO)
    other.close()
    assert first.heard.lost_by == second.heard.lost_by == []


def test_H_08_a_claim_that_another_took_over_is_news_at_once() -> None:
    """A store whose claims end by themselves tells it; nobody has to write to find out."""
    shared = SharedMemory()
    first, second = Reign(InMemoryStore(shared), ONE), Reign(InMemoryStore(shared), TWO)
    assert first.heard.lost_by == ["broker 2 has claimed with epoch 2"]
    second.store.resign()
    Reign(InMemoryStore(shared), ONE)
    assert len(first.heard.lost_by) == 1 and second.heard.lost_by == []


def test_a_commit_that_ends_in_between_is_there_up_to_some_whole_thing() -> None:
    """A store that cuts commits: what is of no use without the rest is never there alone."""
    grown = [PartitionRecord(partition=n, topic_id=TOPIC, replicas=(1,), isr=(1,), leader=1) for n in (1, 2)]
    other = TopicRecord(name="u", topic_id=UUID(int=8))
    asked: list[MetadataRecord] = [*TOPIC_RECORDS, feature(1), *grown, feature(2), other]
    expected: list[list[MetadataRecord]] = [[*TOPIC_RECORDS], [feature(1)], [*grown], [feature(2), other]]
    for fails_at in range(len(expected)):
        shared, written = SharedMemory(), list[list[MetadataRecord]]()

        def fail(piece: Sequence[MetadataRecord], written: list[Any] = written, fails_at: int = fails_at) -> None:
            if len(written) == fails_at:
                raise KafkaStorageError("injected")
            written.append(list(piece))

        store = InMemoryStore(shared, max_records=2)
        first = Reign(store, ONE)
        store.on_commit = fail
        with pytest.raises(KafkaStorageError):
            first.commit(*asked)
        with pytest.raises(KafkaStorageError):  # by the next claim it is known what is there
            first.commit(feature(3))
        second = Reign(InMemoryStore(shared), TWO)
        assert list(second.loaded.records)[1:-1] == [record for piece in expected[:fails_at] for record in piece]


def test_one_leader_at_a_time(tmp_path: Path) -> None:
    """Of several that wait, one at a time gets the embedded store's claim, and each sees what the others wrote."""
    stores = [EmbeddedStore(str(tmp_path / "meta")) for _ in range(4)]
    seen: list[int] = []

    def reign(store: EmbeddedStore, candidate: Candidate) -> None:
        mine = Reign(store, candidate)
        assert mine.commit(feature(mine.epoch)) == mine.loaded.end_offset
        seen.append(mine.epoch)
        store.resign()

    threads = [
        threading.Thread(target=reign, args=(store, Candidate(broker_id=i, host="h", port=1)))
        for i, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert seen == [1, 2, 3, 4]
