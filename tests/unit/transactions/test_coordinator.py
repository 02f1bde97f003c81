"""What the scenarios of the coordinator are too short for: many ids, names that none can have, answers to markers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model import errors as e
from holdfast.model.errors import HoldfastError
from holdfast.records.record import decode_batch
from holdfast.transactions.coordinator import TransactionCoordinator
from holdfast.transactions.markers import MarkerVerdict, verdict
from holdfast.transactions.settings import TransactionSettings
from holdfast.transactions.shard import IDS_PER_TURN
from holdfast.transactions.types import Ending, InitRequest, Producer

DAY_MS = 86_400_000


class World:
    """A coordinator of one partition, its log, and producer ids."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.answers: list[Producer | HoldfastError] = []
        self.now_ms = 1_000_000
        self.coordinator = TransactionCoordinator(
            TransactionSettings(partitions=1, expiration_ms=DAY_MS), self,
            markers=self, fresh_id=lambda reply: reply(len(self.values)), version=lambda: 2,
        )  # fmt: skip
        self.coordinator.on_elected(0, 0)
        self.coordinator.serve(0, 0, self.now_ms)

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        self.values.update((record.key or b"", record.value) for record in decode_batch(batch))
        done(None)

    def send(self, ending: Ending, done: Callable[[], None]) -> None:
        raise AssertionError(f"markers for {ending}")

    def initialize(self, name: str) -> None:
        request = InitRequest(transactional_id=name, timeout_ms=1000, producer=None)
        self.coordinator.initialize(request, self.now_ms, self.answers.append)

    def known(self) -> int:
        return len(self.coordinator.list_transactions(self.now_ms).transactions)


def test_ids_that_expire_at_once_go_in_turns() -> None:
    world = World()
    count = 2 * IDS_PER_TURN + 10
    for number in range(count):
        world.initialize(f"tx{number}")
    assert world.known() == count
    world.now_ms += 2 * DAY_MS
    world.initialize("newer")
    seen = []
    while world.known() > 1:
        due_ms = world.coordinator.next_deadline_ms()
        assert due_ms is not None
        world.now_ms = max(world.now_ms, due_ms)
        world.coordinator.tick(world.now_ms)
        seen.append(world.known() - 1)
    assert seen == [IDS_PER_TURN + 10, 10, 0]
    assert sum(value is None for value in world.values.values()) == count


@pytest.mark.parametrize("name", ["", "x" * 32768, "é" * 16384])
def test_a_name_that_no_record_can_hold_is_refused(name: str) -> None:
    world = World()
    world.initialize(name)
    [answer] = world.answers
    assert isinstance(answer, e.InvalidRequestError)
    assert f"{len(name)} characters" in str(answer)
    assert isinstance(world.coordinator.describe(name, world.now_ms).error, e.InvalidRequestError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, MarkerVerdict.DONE),
        (e.InvalidProducerEpochError("newer"), MarkerVerdict.DONE),
        (e.UnsupportedForMessageFormatError("old"), MarkerVerdict.DONE),
        (e.KafkaStorageError("disk"), MarkerVerdict.AGAIN),
        (e.NotEnoughReplicasAfterAppendError("isr"), MarkerVerdict.AGAIN),
    ],
)
def test_a_marker_is_sent_again_unless_the_partition_needs_none(
    error: HoldfastError | None, expected: MarkerVerdict
) -> None:
    assert verdict(error) is expected
