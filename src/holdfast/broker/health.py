"""How a broker is, for Kubernetes, load balancers and who restarts brokers one after the other (metrics_server.py).

Owns what three questions are answered with: whether it lives, whether it serves, and whether it may be stopped. Reads
the broker's parts on the loop, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from holdfast.broker.admission import Admission
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.config import LogConfig
    from holdfast.model.types import BrokerId
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.replication.partition import Partition
    from holdfast.storage.log_manager import LogManager

TURN_LIMIT_S: Final = 5.0
"""A loop that has not turned for so long does not live."""
_TOLD: Final = 20
"""Partitions that are named as reasons; how many there are is told in any case."""
_AT_ONCE: Final = 500


class HealthHost(Protocol):
    """What the answers are read from. Parts come into being while the broker starts."""

    broker_id: BrokerId
    stopping: asyncio.Event
    metadata: MetadataCache

    @property
    def logs(self) -> LogManager: ...

    @property
    def membership(self) -> Membership: ...

    @property
    def admission(self) -> Admission: ...

    @property
    def replicas(self) -> LocalReplicas: ...

    def log_config(self, topic: str) -> LogConfig: ...


Answer = tuple[bool, Mapping[str, Any]]
"""Whether it is so, and what is told of it as JSON."""


def live(pause_s: float) -> Answer:
    """``pause_s``: since the loop has turned last."""
    if pause_s <= TURN_LIMIT_S:
        return _answer([])
    return _answer([_reason("loop", f"the event loop has not turned for {pause_s:.1f} s")])


def ready(broker: HealthHost) -> Answer:
    """Whether clients are served."""
    return _answer([_reason(*each) for each in _waits_for(broker)])


def _waits_for(broker: HealthHost) -> Iterator[tuple[str, str]]:
    if broker.stopping.is_set():
        yield "stopping", "the broker is stopping"
        return
    logs: LogManager | None = getattr(broker, "logs", None)
    if logs is None:
        yield "start", "the metadata store and the log directories are looked at"
        return
    membership: Membership | None = getattr(broker, "membership", None)
    if membership is None:
        loading = ", ".join(d.path for d in logs.loading) or "all are read"
        yield "recovery", f"the logs are recovered; still to be read: {loading}"
        return
    if not membership.unfenced.is_set():
        yield "registration", "the controller does not count this broker as alive yet, or not any more"
    if not broker.admission.is_open:
        yield "metadata", "the controller has not told this broker what there is"


async def safe_to_stop(broker: HealthHost) -> Answer:
    """Whether no partition is left with fewer in sync than min.insync.replicas when this broker stops. Lets others run
    between pieces."""
    not_ready = [_reason(*each) for each in _waits_for(broker)]
    if not_ready:
        return _answer(not_ready)
    if not broker.membership.is_current:
        return _answer([_reason("metadata", "the controller was not heard of in time: who is in sync is not known")])
    short: list[Mapping[str, Any]] = []
    every = list(broker.replicas.partitions.values())
    for at, partition in enumerate(every, 1):
        if (found := _would_be_short(broker, partition)) is not None:
            short.append(found)
        if at % _AT_ONCE == 0:
            await asyncio.sleep(0)
    is_safe, told = _answer(short[:_TOLD])
    return is_safe, {**told, "partitions": len(short)}


def _would_be_short(broker: HealthHost, partition: Partition) -> Mapping[str, Any] | None:
    tp = partition.topic_partition
    info = broker.metadata.partition(tp)
    if info is None or broker.broker_id not in info.replicas:
        return None
    left = [b for b in info.isr if b != broker.broker_id and broker.metadata.leads(b)]
    config = broker.log_config(tp.topic) if partition.log is None else partition.log.config
    least = min(config.min_insync_replicas, len(info.replicas))
    if len(left) >= least:
        return None
    text = f"{tp}: {len(left)} in sync without broker {broker.broker_id}, expected min.insync.replicas={least}"
    return {
        **_reason("min.insync.replicas", text),
        "topic": tp.topic,
        "partition": tp.partition,
        "in_sync": len(left),
        "min_insync_replicas": least,
    }


def _reason(what: str, text: str) -> Mapping[str, Any]:
    return {"reason": what, "text": text}


def _answer(reasons: list[Mapping[str, Any]]) -> Answer:
    return not reasons, {"ok": not reasons, "reasons": reasons}
