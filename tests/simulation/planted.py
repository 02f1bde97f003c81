"""Known bugs, put back one at a time, to see that the simulation finds them.

Each replaces one function of the product for the time of a run; nothing of them is in the product.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.controller import isr as controller_isr
from holdfast.replication import partition as partitions
from tests.simulation.faults import Kind


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def truncation_to_high_watermark() -> Iterator[None]:
    """H-01: who begins to follow cuts its log at its own high watermark, which is one fetch behind."""
    before = partitions.Partition.become_follower

    def become_follower(self: Any, state: Any, settled: Callable[[], None]) -> None:
        def cut() -> None:
            log = self.log
            if log is None or log.view.end_offset <= self.high_watermark:
                settled()
                return
            high_watermark = self.high_watermark
            now_ms = self.around.clock()
            log.dir.queue.submit(lambda: log.truncate_to(high_watermark, now_ms), lambda *_: settled())

        before(self, state, cut)

    with _replaced(partitions.Partition, "become_follower", become_follower):
        yield


@contextlib.contextmanager
def isr_without_broker_epochs() -> Iterator[None]:
    """H-06: the controller takes a replica into the ISR whatever incarnation of its broker the leader meant."""
    judge = controller_isr._ineligible

    def blind(state: Any, topic: Any, partition: Any, proposal: Any, where: Any) -> Any:
        anyone = tuple((member, None) for member, _ in proposal.isr)
        return judge(state, topic, partition, dataclasses.replace(proposal, isr=anyone), where)

    with _replaced(controller_isr, "_ineligible", blind):
        yield


@contextlib.contextmanager
def ack_before_the_isr() -> Iterator[None]:
    """acks=all is answered when the leader has it."""
    before = partitions.Partition.append

    def append(self: Any, batches: Any, acks: int, timeout_ms: int, now_ms: int, done: Any) -> None:
        before(self, batches, 1 if acks == -1 else acks, timeout_ms, now_ms, done)

    with _replaced(partitions.Partition, "append", append):
        yield


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "H-01": truncation_to_high_watermark,
    "H-06": isr_without_broker_epochs,
    "early-ack": ack_before_the_isr,
}
WEIGHTS: dict[str, dict[Kind, int]] = {
    "H-06": {
        Kind.POWER: 6, Kind.WIPE: 6, Kind.SLOW: 10, Kind.ISOLATE: 6, Kind.CUT: 10, Kind.RESET: 3, Kind.KILL: 3,
        Kind.STOP: 3,
    },
}  # fmt: skip
"""Faults that bring a bug out sooner than the usual ones: what it takes is rare among them."""
