"""Scenarios of a coordinator as text, with groups as the tenant: leadership, loading, offsets in transactions.

    command arguments
    ----
    what was written, what was answered

Each file in coordinators/ is one ``__consumer_offsets-0`` and one coordinator after another. HOLDFAST_REWRITE=1 writes
the output anew; the difference is then read in review. After every step that leaves nothing under way it is also
checked that what is served is what a replay of the log says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.group import Group
from holdfast.groups.offset_records import OffsetKey, decode_key, decode_offset
from holdfast.groups.settings import GroupSettings
from holdfast.groups.types import CommitRequest, CommitResult, OffsetsTransaction, OffsetToCommit
from holdfast.model import errors as e
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import parse_header
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import decode_batch
from tests.scenarios.texts import check_file

FILES = sorted((Path(__file__).parent / "coordinators").glob("*.txt"))
Done = Callable[[HoldfastError | None], None]


class Scenario:
    """See the module's docstring; also the coordinator's log."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.out: list[str] = []
        self.log: list[bytes] = []
        self.held: deque[tuple[bytes, Done]] | None = None
        self.error: HoldfastError | None = None
        self.is_in_log = True
        self.read: dict[str, Group] = {}
        self.epoch = -1
        self.commands: dict[str, Callable[..., None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        self.start()

    def start(self) -> None:
        settings = GroupSettings(offsets_partitions=1, offsets_retention_ms=60_000, offsets_check_interval_ms=10_000)
        self.coordinator = GroupCoordinator(settings, self, new_member_suffix=lambda: "1")

    def run(self, line: str) -> list[str]:
        """The output of one command."""
        self.out = []
        name, *words = line.split()
        self.commands[name](*(w for w in words if "=" not in w), **dict(w.split("=", 1) for w in words if "=" in w))
        self.check()
        return self.out

    def check(self) -> None:
        shard = self.coordinator._shards.at(0)
        if shard is None or self.held:
            return
        replay = self.coordinator.replay()
        assert replay.feed(b"".join(self.log)) == sum(map(len, self.log))
        assert sorted(map(stand, replay.groups().values())) == sorted(map(stand, shard.groups.values()))

    # -- GroupLog ----------------------------------------------------------------------------------------------

    def append(self, partition: int, batch: bytearray, done: Done) -> None:
        if self.held is None:
            self.finish(bytes(batch), done)
        else:
            self.held.append((bytes(batch), done))

    def append_within(self, transaction: OffsetsTransaction, partition: int, batch: bytearray, done: Done) -> None:
        header = parse_header(batch)
        assert (header.producer_id, header.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
        assert header.is_transactional
        self.append(partition, batch, done)

    def finish(self, batch: bytes, done: Done) -> None:
        error, self.error = self.error, None
        if error is None or self.is_in_log:
            self.log.append(batch)
            header = parse_header(batch)
            for record in decode_batch(batch):
                key = decode_key(record.key or b"")
                assert key is not None
                what = f"{key.group_id} {key.tp}" if isinstance(key, OffsetKey) else f"{key.group_id}"
                value = None if record.value is None else decode_offset(record.value)
                of = f" of producer {header.producer_id}" if header.is_transactional else ""
                self.out.append(f"record {what} {'gone' if value is None else value.offset}{of}")
        done(error)

    # -- commands ----------------------------------------------------------------------------------------------

    def do_elected(self, epoch: str) -> None:
        self.epoch = int(epoch)
        self.coordinator.on_elected(0, self.epoch)

    def do_read(self) -> None:
        """What the log says now; it is served later."""
        replay = self.coordinator.replay()
        replay.feed(b"".join(self.log))
        while replay.unfold(2):
            pass
        self.read = {}
        while found := replay.pieces(1):
            self.read |= found
        self.out += [stand(group) for group in self.read.values()]

    def do_serve(self, epoch: str = "") -> None:
        at = int(epoch) if epoch else self.epoch
        self.coordinator.add(0, at, self.read, self.now_ms)
        self.coordinator.serve(0, at, self.now_ms)
        self.do_state()

    def do_resigned(self) -> None:
        self.coordinator.on_resigned(0)

    def do_another(self) -> None:
        """Another broker, which leads from now on and reads all there is."""
        self.start()
        self.do_elected(str(self.epoch + 1))
        self.do_read()
        self.coordinator.add(0, self.epoch, self.read, self.now_ms)
        self.coordinator.serve(0, self.epoch, self.now_ms)

    def do_commit(self, group_id: str, **offsets: str) -> None:
        self.coordinator.commit(self.request(group_id, offsets), self.now_ms, self.answer)

    def do_within(
        self, producer: str, group_id: str, *, generation: str = "", member: str | None = None, **offsets: str
    ) -> None:
        """TxnOffsetCommit."""
        request = self.request(
            group_id, offsets, OffsetsTransaction("tx", int(producer), 0, 3), int(generation) if generation else None,
            member,
        )  # fmt: skip
        self.coordinator.commit_within(request, self.now_ms, self.answer)

    def request(
        self, group_id: str, offsets: dict[str, str], transaction: OffsetsTransaction | None = None,
        generation: int | None = None, member: str | None = None,
    ) -> CommitRequest:  # fmt: skip
        return CommitRequest(
            group_id=group_id,
            member_id=member,
            generation=generation,
            offsets=tuple(OffsetToCommit(where(at), int(offset), None, "") for at, offset in offsets.items()),
            transaction=transaction,
            knows_group_not_found=False,
        )

    def answer(self, result: CommitResult) -> None:
        self.out += [f"{tp}: {'ok' if error is None else told(error)}" for tp, error in result.items()]

    def do_marker(self, producer: str, how: str, *flags: str) -> None:
        """It is in the log; ``unheard``: the coordinator is not told, since it leads no more, or not yet."""
        marker = EndMarker(how == "commit", 0)
        self.log.append(bytes(encode_marker(int(producer), 0, marker, self.now_ms)))
        if "unheard" not in flags:
            self.coordinator.complete_transaction(0, int(producer), marker.is_commit)

    def do_fetch(self, group_id: str, *partitions: str, stable: str = "no") -> None:
        asked = None if partitions == ("all",) else [where(at) for at in partitions]
        found = self.coordinator.fetch_offsets(group_id, asked, self.now_ms, require_stable=stable == "yes")
        if found.error is not None:
            self.out.append(f"refused {told(found.error)}")
        for tp, committed in found.offsets.items():
            offset = "none" if committed is None else str(committed.offset)
            self.out.append(f"{tp}: {'UNSTABLE' if tp in found.unstable else offset}")

    def do_hold(self) -> None:
        """Appends are answered later."""
        self.held = deque()

    def do_answered(self) -> None:
        held, self.held = self.held or deque(), None
        for each in held:
            self.finish(*each)

    def do_fail(self, error: str, *flags: str) -> None:
        """The next append is answered with it; ``written``: and is in the log all the same."""
        self.error, self.is_in_log = getattr(e, error)("planted"), "written" in flags

    def do_delete(self, group_id: str) -> None:
        self.coordinator.delete_group(group_id, self.now_ms, lambda e: self.out.append(told(e) if e else "deleted"))

    def do_topics_deleted(self, *topics: str) -> None:
        self.coordinator.on_topics_deleted(topics, self.now_ms)

    def do_advance(self, ms: str) -> None:
        end_ms = self.now_ms + int(ms)
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.tick(self.now_ms)
        self.now_ms = end_ms

    def do_state(self) -> None:
        shard = self.coordinator._shards.at(0)
        self.out += ["not served"] if shard is None else [stand(shard.groups[g]) for g in sorted(shard.groups)]


def where(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def told(error: HoldfastError) -> str:
    return f"{type(error).__name__}: {error}"


def stand(group: Group) -> str:
    """What is known of it."""
    offsets = [f"{tp}={committed.offset}" for tp, committed in sorted(group.offsets.items())]
    pending: Iterable[str] = (
        f"{tp} of {producer}: {'overtaken' if committed is None else committed.offset}"
        for tp, waiting in sorted(group.in_transactions.items())
        for producer, committed in waiting.items()
    )
    return " | ".join([f"{group.group_id}: {' '.join(offsets) or 'nothing'}", *pending])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    check_file(path, Scenario().run)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 3
