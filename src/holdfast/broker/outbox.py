"""What replication asks of the shell (replication/types.py, Outbox): ISR changes, fetches, leadership news.

AlterPartition proposals of one loop turn go to the controller in one request, one request under way at a time:
while one is out the next ones gather.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.model.errors import HoldfastError, NetworkError, UnknownServerError
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.error_codes import error_of
from holdfast.replication.types import Fetcher, IsrOutcome, IsrProposal

if TYPE_CHECKING:
    from holdfast.broker.coordinator_host import Coordinators
    from holdfast.broker.disks import Disks
    from holdfast.broker.membership import Membership
    from holdfast.broker.replica_fetcher import ReplicaFetchers
    from holdfast.model.types import BrokerId
    from holdfast.replication.local_replicas import LocalReplicas

log = logging.getLogger(__name__)

ALTER_PARTITION_VERSION = 3
TIMEOUT_S = 10.0
RESEND_S = 0.02


class OutboxHost(Protocol):
    """The parts that replication's wishes go to."""

    broker_id: BrokerId
    membership: Membership
    replicas: LocalReplicas
    fetchers: ReplicaFetchers
    disks: Disks
    coordinators: Coordinators

    def now_ms(self) -> int: ...


class BrokerOutbox:
    """See the module's docstring."""

    def __init__(self, broker: OutboxHost) -> None:
        self._broker = broker
        self._waiting: list[IsrProposal] = []
        self._sender: asyncio.Task[None] | None = None

    def alter_partition(self, proposals: Sequence[IsrProposal]) -> None:
        self._waiting.extend(proposals)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    def fetcher_ready(self, fetcher: Fetcher) -> None:
        self._broker.fetchers.ready(fetcher)

    def log_is_corrupt(self, tp: TopicPartition, error: HoldfastError) -> None:
        self._broker.disks.news.doubt(tp, error)

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        self._broker.coordinators.leadership_changed(tp, is_leader, leader_epoch)

    async def _send(self) -> None:
        try:
            while self._waiting:
                # Between two controllers they gather here: refused now, they would come again only after a while.
                await self._broker.membership.connected()
                proposals, self._waiting = self._waiting, []
                try:
                    await self._send_one(proposals)
                except NetworkError as e:
                    # Recorded or not: the next controller says so when it is asked the same again.
                    log.info("AlterPartition of %d partitions is sent again: %s", len(proposals), e)
                    self._waiting[:0] = proposals
                    await asyncio.sleep(RESEND_S)
                except HoldfastError as e:
                    self._all(proposals, e)
                except Exception as e:
                    log.exception("AlterPartition failed")
                    self._all(proposals, UnknownServerError(str(e)))
        finally:
            self._sender = None

    def _all(self, proposals: Sequence[IsrProposal], error: HoldfastError) -> None:
        for proposal in proposals:
            self._tell(proposal, error)

    def _tell(self, proposal: IsrProposal, outcome: IsrOutcome | HoldfastError) -> None:
        """One partition that fails on its answer keeps nobody else from theirs, nor from what they propose next."""
        try:
            self._broker.replicas.alter_partition_result(proposal, outcome, self._broker.now_ms())
        except Exception:
            log.exception("%s: the answer to its proposal could not be taken", proposal.topic_partition)

    async def _send_one(self, proposals: list[IsrProposal]) -> None:
        topics: dict[Any, list[dict[str, Any]]] = {}
        for p in proposals:
            topics.setdefault(p.topic_id, []).append(
                {
                    "partition_index": p.topic_partition.partition,
                    "leader_epoch": p.leader_epoch,
                    "new_isr_with_epochs": [
                        {"broker_id": b, "broker_epoch": -1 if epoch is None else epoch} for b, epoch in p.isr
                    ],
                    "leader_recovery_state": int(not p.recovered),
                    "partition_epoch": p.partition_epoch,
                }
            )
        membership = self._broker.membership
        answer = await membership.ask(
            ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, TIMEOUT_S,
            broker_id=self._broker.broker_id, broker_epoch=membership.broker_epoch,
            topics=[{"topic_id": topic_id, "partitions": parts} for topic_id, parts in topics.items()],
        )  # fmt: skip
        top = error_of(int(answer.error_code))
        if top is not None:
            self._all(proposals, top)
            return
        results = {(t.topic_id, p.partition_index): p for t in answer.topics for p in t.partitions}
        for proposal in proposals:
            found = results.get((proposal.topic_id, proposal.topic_partition.partition))
            outcome: IsrOutcome | HoldfastError
            if found is None:
                outcome = UnknownServerError(f"the controller did not answer for {proposal.topic_partition}")
            else:
                outcome = error_of(int(found.error_code)) or IsrOutcome(
                    None if found.leader_id < 0 else found.leader_id,
                    found.leader_epoch,
                    tuple(found.isr),
                    found.partition_epoch,
                    tuple(found.eligible),
                    bool(found.leader_recovery_state),
                )
            self._tell(proposal, outcome)
