"""The embedded metadata store on a disk that loses power, against a ledger of what it said it had committed.

Three brokers of one machine share it. They claim, commit, take snapshots, resign and are killed; the disk refuses
operations, or the machine goes down in the middle of one. Then: what a commit returned for is there, what it did not
return for is there as a whole or not at all, epochs only grow, and the id of the cluster stays.
"""

import errno
import logging
import random
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.lanes import InlineLanes
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import FeatureLevelRecord, MetadataRecord
from holdfast.metadata.store import Candidate, Claim
from holdfast.model.errors import KafkaStorageError
from tests.simulation.disk import CrashNow, SimDisk, WouldBlock

RUNS = 60
CRASHES = 5


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Broker:
    """One process, and what it knows."""

    def __init__(self, run: "Run", number: int) -> None:
        self.number = number
        self.store = EmbeddedStore(
            "/machine/store",
            files=run.disk.mount(self),
            snapshot_bytes=1500,
            clock=lambda: 1000,
            new_id=run.new_id,
            lanes=InlineLanes(),
        )
        self.claim: Claim | None = None
        self.image = ClusterImage.empty("c")


class Run:
    """One machine with its brokers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed), now_ms=lambda: 1000)
        self.disk.mount_point("/machine")
        self.brokers: list[Broker | None] = [None, None, None]
        self.committed: set[str] = set()
        self.perhaps: set[str] = set()
        self.epoch = 0
        self.cluster_id: str | None = None
        self.numbers = 0
        self.crash_at: int | None = None
        self.failing = False

    def new_id(self) -> UUID:
        self.numbers += 1
        return UUID(int=self.numbers)

    def fault(self, operation: str, path: str) -> None:
        if self.crash_at is not None and self.disk.operations >= self.crash_at:
            self.crash_at = None
            raise CrashNow
        if self.failing and operation in ("write", "fsync", "create", "rename") and self.rng.random() < 0.3:
            raise OSError(errno.EIO, "injected", path)

    def go(self) -> None:
        self.disk.fault = self.fault
        for _ in range(CRASHES):
            self.crash_at = self.disk.operations + self.rng.randint(1, 600) if self.rng.random() < 0.7 else None
            for _ in range(self.rng.randint(1, 150)):
                at = self.rng.randrange(3)
                try:
                    self.operate(at)
                except CrashNow:
                    if self.rng.random() < 0.5:
                        break
                    self.kill(at)
            self.disk.power_loss(self.rng)
            self.brokers = [None, None, None]
        self.crash_at = None
        self.brokers[0] = Broker(self, 0)
        self.reign(self.brokers[0])

    def kill(self, at: int) -> None:
        broker, self.brokers[at] = self.brokers[at], None
        if broker is not None:
            self.disk.kill(broker)

    def operate(self, at: int) -> None:
        broker = self.brokers[at]
        if broker is None:
            self.brokers[at] = Broker(self, at)
            return
        kind = self.rng.random()
        if kind < 0.05:
            self.kill(at)
        elif kind < 0.15:
            found = broker.store.cluster_id()
            assert self.cluster_id in (None, found)
            self.cluster_id = found
        elif kind < 0.2:
            location = broker.store.active()
            assert location is None or location.epoch <= self.epoch + 1
        elif broker.claim is None:
            self.reign(broker)
        elif kind < 0.25:
            broker.claim = None
            broker.store.resign()
        elif broker.store.wants_snapshot and self.rng.random() < 0.3:
            self.quietly(lambda: broker.store.snapshot(broker.image, broker.claim.epoch))
        else:
            self.commit(broker)

    def quietly(self, work: Callable[[], object]) -> bool:
        """Do it on a disk that fails at times; whether it was done."""
        self.failing = self.rng.random() < 0.3
        try:
            work()
        except KafkaStorageError:
            return False
        finally:
            self.failing = False
        return True

    def reign(self, broker: Broker) -> None:
        try:
            claim = broker.store.claim(Candidate(broker_id=broker.number, host="h", port=1))
        except WouldBlock:
            assert any(other is not None and other.claim is not None for other in self.brokers)
            return
        assert claim.epoch > self.epoch
        self.epoch = claim.epoch
        loaded = broker.store.load(claim)
        image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
        found = set(image.features)
        assert self.committed <= found, f"lost: {self.committed - found}"
        assert found <= self.committed | self.perhaps, f"never committed: {found - self.committed - self.perhaps}"
        pairs = [name for name in found if name.endswith("a")]
        assert all(name[:-1] + "b" in found for name in pairs), "half of a commit"
        assert image.next_offset == loaded.end_offset
        self.committed, self.perhaps = found, set()
        broker.claim, broker.image = claim, image

    def commit(self, broker: Broker) -> None:
        self.numbers += 1
        names = [f"{self.numbers}"] if self.rng.random() < 0.5 else [f"{self.numbers}a", f"{self.numbers}b"]
        records: list[MetadataRecord] = [FeatureLevelRecord(name=name, level=1) for name in names]
        self.perhaps.update(names)
        assert broker.claim is not None
        epoch = broker.claim.epoch
        offsets: list[int] = []
        if self.quietly(lambda: offsets.append(broker.store.commit(records, epoch))):
            assert offsets == [broker.image.next_offset]
            broker.image, _ = broker.image.apply(records, offsets[0])
            self.perhaps.difference_update(names)
            self.committed.update(names)


@pytest.mark.parametrize("seed", range(RUNS))
def test_H_08_the_store_keeps_what_it_committed_through_any_loss_of_power(seed: int) -> None:
    Run(seed).go()
