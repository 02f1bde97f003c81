"""What transactional producers did and readers saw, and what that says: every transaction is whole or not there.

Pure. A transaction is open until its producer knows better: committed when EndTxn said so, aborted when nobody can have
committed it, unknown when the answer was never heard. What a reader of committed records sees is of no aborted one; at
the end each is there as a whole, once, or not at all, and in its producer's order.

``Versions`` is the same for keys of a compacted topic: each key is one register, written by one producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast.model.types import Offset, TopicPartition
from tests.simulation.watch import Violation


class Outcome(Enum):
    """What is known of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Txn:
    """One transaction. ``values``: what was sent, by partition. ``group_offset``: committed for a group with it."""

    name: str
    values: dict[TopicPartition, list[str]] = field(default_factory=dict)
    group_offset: Offset | None = None
    outcome: Outcome = Outcome.OPEN


@dataclass(slots=True)
class Version:
    """One write of a key; ``value`` None is a tombstone. ``txn`` None: of no transaction, and acknowledged when it has
    an offset or ``is_acked``."""

    value: str | None
    txn: Txn | None
    offset: Offset | None = None
    is_acked: bool = False

    @property
    def is_in(self) -> bool:
        """Committed for sure."""
        return self.is_acked if self.txn is None else self.txn.outcome is Outcome.COMMITTED

    @property
    def may_be_in(self) -> bool:
        return self.txn is None or self.txn.outcome is not Outcome.ABORTED


class TxnJudge:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.txns: list[Txn] = []
        self._of: dict[str, Txn] = {}
        self._seen: dict[tuple[TopicPartition, Offset], str] = {}
        self._seen_of: set[Txn] = set()
        self.versions: dict[TopicPartition, dict[str, list[Version]]] = {}
        self.committed = self.aborted = 0

    # -- producers ---------------------------------------------------------------------------------------------

    def begin(self, name: str) -> Txn:
        txn = Txn(name)
        self.txns.append(txn)
        return txn

    def sends(self, txn: Txn, tp: TopicPartition, value: str) -> None:
        """It is about to be sent."""
        txn.values.setdefault(tp, []).append(value)
        self._of[value] = txn

    def writes(self, tp: TopicPartition, key: str, value: str | None, txn: Txn | None) -> Version:
        """A key is about to be written."""
        version = Version(value, txn)
        self.versions.setdefault(tp, {}).setdefault(key, []).append(version)
        return version

    def over(self, txn: Txn, outcome: Outcome) -> None:
        """A producer knows how it ended."""
        txn.outcome = outcome
        self.committed += outcome is Outcome.COMMITTED
        self.aborted += outcome is Outcome.ABORTED
        if outcome is Outcome.ABORTED and txn in self._seen_of:
            raise Violation(f"{txn.name} was aborted, and a reader of committed records has seen it")

    # -- readers -----------------------------------------------------------------------------------------------

    def saw(self, tp: TopicPartition, offset: Offset, value: str) -> None:
        """A reader of committed records got this."""
        before = self._seen.setdefault((tp, offset), value)
        if before != value:
            raise Violation(f"{tp}: offset {offset} was read as {before}, then as {value}")
        txn = self._of.get(value)
        if txn is None or value not in txn.values.get(tp, ()):
            raise Violation(f"{tp}: offset {offset} has {value!r}, which nobody sent there")
        self._seen_of.add(txn)
        if txn.outcome is Outcome.ABORTED:
            raise Violation(f"{tp}: {value} at offset {offset} is of {txn.name}, which was aborted")

    def settle(self, found: Mapping[TopicPartition, list[str]]) -> None:
        """All that a reader of committed records finds in the partitions, in order."""
        for tp, values in found.items():
            if len(values) != len(set(values)):
                twice = sorted({v for v in values if values.count(v) > 1})
                raise Violation(f"{tp}: committed records stand there twice: {twice[:5]}")
            last: dict[str, int] = {}
            for value in values:
                producer, _, number = value.rpartition(":")
                if int(number) < last.get(producer, -1):
                    raise Violation(f"{tp}: {value} stands behind a later record of its producer")
                last[producer] = int(number)
        there = {tp: set(values) for tp, values in found.items()}
        for txn in self.txns:
            self._settle_one(txn, there)

    def _settle_one(self, txn: Txn, there: Mapping[TopicPartition, set[str]]) -> None:
        sent = [(tp, v) for tp, values in txn.values.items() if tp in there for v in values]
        missing = [v for tp, v in sent if v not in there[tp]]
        if txn.outcome is Outcome.COMMITTED and missing:
            raise Violation(f"{txn.name} was committed, and lacks {missing[:5]} of {len(sent)}")
        if txn.outcome is not Outcome.COMMITTED and missing and len(missing) < len(sent):
            raise Violation(f"{txn.name} ({txn.outcome.value}) is there in parts: {missing[:5]} of {len(sent)} missing")
        if txn.outcome is Outcome.ABORTED and len(missing) < len(sent):
            raise Violation(f"{txn.name} was aborted, and is there")

    # -- keys --------------------------------------------------------------------------------------------------

    def floors(self, tp: TopicPartition, end: Offset | None) -> dict[str, int]:
        """Of each key the newest version that a reader up to ``end`` has to see, or a newer one; -1: none. ``end``: the
        last stable offset, so that all before it is decided; None: all that is committed."""
        return {key: _floor(versions, end) for key, versions in self.versions.get(tp, {}).items()}

    def scanned(self, tp: TopicPartition, floors: Mapping[str, int], state: Mapping[str, str | None]) -> None:
        """A reader of committed records went from the start to the end, and this is the last that it saw of each key;
        ``floors`` as they were before."""
        known = self.versions.get(tp, {})
        for key in state:
            if key not in known:
                raise Violation(f"{tp}: key {key!r} was written by nobody")
        for key, floor in floors.items():
            value = state.get(key)
            versions = known[key]
            if any(v.value == value and v.may_be_in for v in versions[max(floor, 0) :]):
                continue
            if value is None and floor < 0:
                continue
            newest = versions[floor].value if floor >= 0 else None
            raise Violation(f"{tp}: key {key!r} is {value!r} for a reader, {newest!r} or newer is committed")

    # -- the group ---------------------------------------------------------------------------------------------

    def settle_group(self, producer: str, offset: Offset | None) -> None:
        """The group is at ``offset`` in the partition for which only this producer commits."""
        mine = [t for t in self.txns if t.group_offset is not None and t.name.rpartition("/")[0] == producer]
        known = [i for i, t in enumerate(mine) if t.outcome is Outcome.COMMITTED]
        floor = known[-1] if known else -1
        if offset is None:
            if floor >= 0:
                raise Violation(f"{mine[floor].name} committed {mine[floor].group_offset}, the group has no offset")
            return
        if not any(t.group_offset == offset and t.outcome is not Outcome.ABORTED for t in mine[max(floor, 0) :]):
            newest = (
                f"{mine[floor].name} committed {mine[floor].group_offset}" if floor >= 0 else "nothing is committed"
            )
            raise Violation(f"the group is at {offset} for {producer}, {newest}")


def _floor(versions: list[Version], end: Offset | None) -> int:
    for i in range(len(versions) - 1, -1, -1):
        version = versions[i]
        if not version.is_in:
            continue
        if end is None:
            return i
        if version.offset is not None and version.offset < end:
            return i
    return -1
