"""Scenarios of the transaction coordinator as text: commands, and everything that follows from them.

    command arguments
    ----
    what was recorded, which markers went out, what was answered

Each file in transactions/ is one ``__transaction_state-0`` from its first record on, and one coordinator of it after
another. HOLDFAST_REWRITE=1 writes the output anew; the difference is then read in review. After every step it is also
checked that what is in force is what the durable log says.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model import errors as e
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.record import decode_batch
from holdfast.transactions.coordinator import TransactionCoordinator
from holdfast.transactions.records import decode_record, encode_key, encode_value
from holdfast.transactions.settings import TransactionSettings
from holdfast.transactions.types import (
    AddRequest,
    Ending,
    EndRequest,
    InitRequest,
    Producer,
    Transaction,
)
from tests.scenarios.texts import check_file

FILES = sorted((Path(__file__).parent / "transactions").glob("*.txt"))


class Scenario:
    """See the module's docstring; also the coordinator's log and its sender of markers."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.out: list[str] = []
        self.version = 2
        self.settings = TransactionSettings(partitions=1)
        self.log: list[tuple[bytes, bytes | None]] = []
        """What is durable."""
        self.held: list[tuple[list[tuple[bytes, bytes | None]], Callable[[HoldfastError | None], None]]] | None = None
        self.error: HoldfastError | None = None
        self.endings: list[tuple[Ending, Callable[[], None]]] = []
        self.ids: list[Callable[[int | HoldfastError], None]] | None = None
        self.next_id = 1000
        self.epoch = 0
        self.commands: dict[str, Callable[..., None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        self.do_elected("0")
        self.out.clear()

    def run(self, line: str) -> list[str]:
        """The output of one command."""
        self.out = []
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.commands[name](*(word for word in words if "=" not in word), **options)
        self.check()
        return self.out

    def check(self) -> None:
        """What is in force is what a coordinator after this one would read."""
        shard = self.coordinator._shards.at(0)
        if shard is not None:
            assert {n: seen(t) for n, t in shard.transactions.items()} == {n: seen(t) for n, t in self.newest().items()}

    def newest(self) -> dict[str, Transaction]:
        last: dict[bytes, bytes | None] = dict(self.log)
        found = (decode_record(key, value) for key, value in last.items() if value is not None)
        return {each.transactional_id: each.transaction for each in found if each is not None}

    # -- what the coordinator is given -------------------------------------------------------------------------

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        entries = [(r.key or b"", r.value) for r in decode_batch(batch)]
        for key, value in entries:
            self.out.append(f"record {show_record(key, value)}")
        if self.error is not None:
            self.out.append(f"refused by the log: {type(self.error).__name__}")
            done(self.error)
        elif self.held is not None:
            self.held.append((entries, done))
        else:
            self.log += entries
            done(None)

    def send(self, ending: Ending, done: Callable[[], None]) -> None:
        self.endings.append((ending, done))
        what = "commit" if ending.commit else "abort"
        where = " ".join(map(str, sorted(ending.left)))
        self.out.append(
            f"markers {what} {ending.producer.id}/{ending.producer.epoch} of coordinator {ending.coordinator_epoch} "
            f"version {ending.version} to {where}"
        )

    def fresh_id(self, reply: Callable[[int | HoldfastError], None]) -> None:
        if self.ids is not None:
            self.ids.append(reply)
            return
        self.next_id += 1
        reply(self.next_id - 1)

    # -- commands ----------------------------------------------------------------------------------------------

    def do_settings(self, **options: str) -> None:
        self.settings = TransactionSettings(partitions=1, **{key: int(value) for key, value in options.items()})
        self.do_elected(str(self.epoch))
        self.out.clear()

    def do_version(self, version: str) -> None:
        """The transaction version that the cluster has finalized."""
        self.version = int(version)

    def do_elected(self, epoch: str, before_the_last: str = "0") -> None:
        """Another broker coordinates, and reads what is durable; so many milliseconds pass before the last piece."""
        if hasattr(self, "coordinator"):
            self.do_resigned()
        self.epoch = int(epoch)
        self.coordinator = TransactionCoordinator(
            self.settings, self, markers=self, fresh_id=self.fresh_id, version=lambda: self.version
        )
        self.coordinator.tick(self.now_ms)
        self.coordinator.on_elected(0, self.epoch)
        replay = self.coordinator.replay()
        pairs = {key: value for key, value in dict(self.log).items() if value is not None}
        replay.take({key: varint(len(value)) + value for key, value in pairs.items()}, {})
        while replay.unfold(1):
            pass
        pieces = []
        while (piece := replay.pieces(1)) is not None:
            pieces.append(piece)
        for piece in pieces:
            if piece is pieces[-1]:
                self.do_after(before_the_last)
            self.coordinator.add(0, self.epoch, piece, self.now_ms)
        self.coordinator.serve(0, self.epoch, self.now_ms)

    def do_resigned(self) -> None:
        self.coordinator.on_resigned(0)
        self.endings = [(ending, done) for ending, done in self.endings if not ending.is_over]
        assert self.endings == []

    def do_init(self, name: str, *producer: str, timeout: str = "60000") -> None:
        request = InitRequest(
            transactional_id=name, timeout_ms=int(timeout), producer=as_producer(producer[0]) if producer else None
        )
        self.coordinator.initialize(request, self.now_ms, self.told)

    def do_add(self, name: str, producer: str, *partitions: str, version: str = "0") -> None:
        self.coordinator.add_partitions(adding(name, producer, partitions, version), self.now_ms, self.told)

    def do_verify(self, name: str, producer: str, *partitions: str) -> None:
        told = self.coordinator.verify(adding(name, producer, partitions, "0"), self.now_ms)
        for tp, error in sorted(told.items()):
            self.out.append(f"{tp} {'ok' if error is None else type(error).__name__}")

    def do_end(self, name: str, producer: str, what: str, version: str = "0") -> None:
        request = EndRequest(
            transactional_id=name, producer=as_producer(producer), commit=what == "commit", version=int(version)
        )
        self.coordinator.end(request, self.now_ms, self.told)

    def do_marked(self, *partitions: str) -> None:
        """These partitions have their markers; all, where none is named."""
        endings, self.endings = self.endings, []
        for ending, done in endings:
            ending.left -= {where(p) for p in partitions} if partitions else set(ending.left)
            if ending.left:
                self.endings.append((ending, done))
            else:
                done()

    def do_raise(self, name: str, epoch: str) -> None:
        """As many producers begin as it takes for this epoch."""
        before = self.newest()[name]
        after = dataclasses.replace(before, epoch=int(epoch))
        self.log.append((encode_key(name), encode_value(after, compact=True)))
        self.do_elected(str(self.epoch))

    def do_hold(self) -> None:
        """What is appended from now on is not durable before ``release``."""
        self.held = []

    def do_release(self, error: str = "") -> None:
        held, self.held = self.held or [], None
        for entries, done in held:
            if not error:
                self.log += entries
            done(getattr(e, error)("no") if error else None)

    def do_fail(self, error: str = "") -> None:
        """The log refuses what is appended from now on; no more, where nothing is named."""
        self.error = getattr(e, error)("no") if error else None

    def do_no_ids(self) -> None:
        self.ids = []

    def do_ids(self, error: str = "") -> None:
        """Those that are waited for come, or cannot be had."""
        waiting, self.ids = self.ids or [], None
        for reply in waiting:
            if error:
                reply(getattr(e, error)("no"))
            else:
                self.fresh_id(reply)

    def do_settled(self, name: str, times: str = "1") -> None:
        """Say when nothing of the id is under way any more."""
        for _ in range(int(times)):
            self.coordinator.when_settled(name, self.now_ms, lambda: self.out.append(f"{name} is settled"))

    def do_after(self, ms: str) -> None:
        self.now_ms += int(ms)
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= self.now_ms:
            self.coordinator.tick(max(due_ms, self.now_ms))

    def do_compact(self, seed: str) -> None:
        """Records that newer ones replace go from some prefix of the log, not all of them, and old tombstones."""
        rng, kept = random.Random(int(seed)), []
        last = {key: at for at, (key, _) in enumerate(self.log)}
        until = rng.randrange(len(self.log) + 1)
        for at, (key, value) in enumerate(self.log):
            stale = last[key] != at or (value is None and rng.random() < 0.5)
            if not (stale and at < until and rng.random() < 0.7):
                kept.append((key, value))
        self.out.append(f"{len(self.log)} -> {len(kept)} records")
        self.log = kept

    def do_describe(self, name: str) -> None:
        told = self.coordinator.describe(name, self.now_ms)
        self.out.append(type(told.error).__name__ if told.transaction is None else show(told.transaction))

    def do_list(self, *states: str, longer: str = "", pattern: str = "") -> None:
        told = self.coordinator.list_transactions(
            self.now_ms, states=states, longer_than_ms=int(longer) if longer else None, pattern=pattern or None
        )
        self.out += [f"unknown {state}" for state in told.unknown_states]
        self.out += [f"{t.transactional_id} {t.producer_id} {t.state}" for t in told.transactions]

    def told(self, answer: Producer | HoldfastError | None) -> None:
        if isinstance(answer, HoldfastError):
            self.out.append(f"refused {type(answer).__name__}: {answer}")
        else:
            self.out.append("ok" if answer is None else f"ok {answer.id}/{answer.epoch}")


def adding(name: str, producer: str, partitions: tuple[str, ...], version: str) -> AddRequest:
    return AddRequest(
        transactional_id=name,
        producer=as_producer(producer),
        partitions=frozenset(map(where, partitions)),
        version=int(version),
    )


def as_producer(text: str) -> Producer:
    number, _, epoch = text.partition("/")
    return Producer(int(number), int(epoch))


def where(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def seen(t: Transaction) -> tuple[object, ...]:
    """All that the log says."""
    return (t.producer_id, t.epoch, t.state, t.partitions, t.next_producer_id, t.version, t.timeout_ms, t.start_ms)


def show_record(key: bytes, value: bytes | None) -> str:
    name = key[4:].decode()
    if value is None:
        return f"{name} gone"
    found = decode_record(key, value)
    assert found is not None
    return f"{name} {show(found.transaction)}"


def show(t: Transaction) -> str:
    following = "" if t.next_producer_id is None else f" next={t.next_producer_id}"
    partitions = "".join(f" {tp}" for tp in sorted(t.partitions))
    return f"{t.state.value} {t.producer_id}/{t.epoch}{following} version={t.version}{partitions}"


def varint(value: int) -> bytes:
    """Zigzag, as lengths are in a record."""
    value, out = value << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    check_file(path, Scenario().run)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 8
