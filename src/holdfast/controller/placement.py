"""Where the replicas of new partitions go. Pure arithmetic; the random start comes in as numbers.

Goals, in this order: no two replicas of a partition on one broker; leaders even over the brokers; the load of a
broker that dies spread over all others; with racks, each partition on as many racks as it has replicas.

Without racks, for partition p of n brokers (i = (p + start) mod n leads, k counts the rounds of p over the brokers):

    replica j = broker (i + 1 + (k + j - 1) mod (n - 1)) mod n          j = 1 .. RF-1

    n = 5, RF 3:   p0 012   p1 123   p2 234   p3 340   p4 401 | p5 023   p6 134 ...

With racks the brokers are listed by taking one of each rack in turn, and a replica goes to the next broker of that
walk whose rack has no replica yet, until every rack has one. Kafka calls this AdminUtils' assignment.

A topic of a coordinator is made once, when it is first needed. Where fewer brokers are alive by then than its
partitions have replicas, each live one has a replica and brokers that are down have the rest: they make theirs when
they are back. (Kafka's KRaft places every topic on fenced brokers too; ours takes live ones for what people make, SPEC
R-07.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
)
from holdfast.model.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A broker that may take replicas."""

    id: BrokerId
    rack: str | None = None


def place(
    brokers: Sequence[Place],
    partitions: int,
    replication_factor: int,
    *,
    down: Sequence[Place] = (),
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> list[tuple[BrokerId, ...]]:
    """Replicas of ``partitions`` new partitions, the first of which has the number ``first_partition``. ``down``:
    brokers that take what ``brokers`` are too few for.

    ``start`` is the place of the broker that leads partition 0, ``shift`` the round that the first of these is
    in. InvalidReplicationFactorError, InvalidPartitionsError.
    """
    if partitions < 0:
        raise InvalidPartitionsError(f"Cannot place {partitions} partitions: expected 0 or more")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(
            f"Replication factor {replication_factor} is not usable: expected 1 or more"
        )
    if not brokers:
        raise InvalidReplicationFactorError(
            "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(brokers) + len(down):
        raise InvalidReplicationFactorError(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers) + len(down)} broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )
    if replication_factor > len(brokers):
        live, rest = (sorted(broker.id for broker in each) for each in (brokers, down))
        numbers = range(first_partition + start, first_partition + start + partitions)
        return [_turned(live, p) + _turned(rest, p)[: replication_factor - len(live)] for p in numbers]
    racks = {broker.rack for broker in brokers}
    if None in racks or len(racks) == 1:
        walk = _Walk([broker.id for broker in sorted(brokers, key=lambda b: b.id)], None)
    else:
        ids = alternate_racks(brokers)
        walk = _Walk(ids, {broker.id: broker.rack for broker in brokers})
    result = []
    for number in range(first_partition, first_partition + partitions):
        if number and number % len(brokers) == 0:
            shift += 1
        result.append(walk.replicas((number + start) % len(brokers), shift, replication_factor))
    return result


def _turned(ids: list[BrokerId], by: int) -> tuple[BrokerId, ...]:
    at = by % len(ids)
    return (*ids[at:], *ids[:at])


def alternate_racks(brokers: Sequence[Place]) -> list[BrokerId]:
    """The brokers so that neighbours are of different racks, as long as there are different ones."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        by_rack.setdefault(broker.rack or "", []).append(broker.id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    depth = max(map(len, columns), default=0)
    return [column[row] for row in range(depth) for column in columns if row < len(column)]


class _Walk:
    """The brokers in their order, and the rule by which a partition's replicas are taken from them."""

    __slots__ = ("_ids", "_rack_count", "_racks")

    def __init__(self, ids: list[BrokerId], racks: dict[BrokerId, str | None] | None) -> None:
        self._ids = ids
        self._racks = racks
        self._rack_count = 0 if racks is None else len(set(racks.values()))

    def replicas(self, leader: int, shift: int, replication_factor: int) -> tuple[BrokerId, ...]:
        ids, count = self._ids, len(self._ids)
        if self._racks is None:
            followers = ((leader + 1 + (shift + j) % (count - 1)) % count for j in range(replication_factor - 1))
            return (ids[leader], *(ids[i] for i in followers))
        return self._over_racks(self._racks, leader, shift, replication_factor)

    def _over_racks(
        self, racks: dict[BrokerId, str | None], leader: int, shift: int, replication_factor: int
    ) -> tuple[BrokerId, ...]:
        ids, count = self._ids, len(self._ids)
        taken = [ids[leader]]
        used = {racks[ids[leader]]}
        step = 0
        while len(taken) < replication_factor:
            candidate = ids[(leader + 1 + (shift * self._rack_count + step) % (count - 1)) % count]
            step += 1
            rack = racks[candidate]
            if candidate not in taken and (rack not in used or len(used) == self._rack_count):
                taken.append(candidate)
                used.add(rack)
        return tuple(taken)
