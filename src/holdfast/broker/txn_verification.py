"""Asks transaction coordinators whether a partition is in a transaction, or has them add it (KIP-890).

Owns what is waiting for each coordinator: one AddPartitionsToTxn is out to a broker at a time, and while it is out the
next claims gather. Claims come of Produce (transactional_appends.py) and of TxnOffsetCommit, whose partition is that of
the group. A coordinator whose last transaction is still being ended says so (ConcurrentTransactionsError); who wants a
partition added is asked for again for RETRY_MAX_S, since that passes, also while the coordinator moves.

Bounded: a line takes MAX_WAITING claims, a request MAX_TRANSACTIONS transactions; a coordinator that does not answer
within REQUEST_TIMEOUT_S fails all that wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from holdfast.broker.entity import build
from holdfast.broker.peers import Peers, PeersHost
from holdfast.coordinators.partitioning import partition_for
from holdfast.model.errors import (
    ConcurrentTransactionsError,
    HoldfastError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NetworkError,
    ProducerFencedError,
    UnknownServerError,
)
from holdfast.model.group_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from holdfast.model.internal_topics import TRANSACTIONS_TOPIC
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.error_codes import error_of

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache

log = logging.getLogger(__name__)

VERSION: Final = 5
REQUEST_TIMEOUT_S: Final = 5.0
MAX_WAITING: Final = 10_000
MAX_TRANSACTIONS: Final = 500
RETRY_S: Final = 0.02
"""add.partitions.to.txn.retry.backoff.ms"""
RETRY_MAX_S: Final = 2.0
"""As long as the markers of the last transaction may take when a leader has just died. Kafka gives up after 0.1 s
(add.partitions.to.txn.retry.backoff.max.ms), and a client that looks for another leader then (franz-go) does so once in
5 s."""
_CLUSTER_AUTHORIZATION_FAILED: Final = 31


class PartitionClaim(NamedTuple):
    """That a partition is in the open transaction of a producer. ``adds``: if it is not, it shall be (transaction
    version 2)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic_partition: TopicPartition
    adds: bool

    @property
    def transaction(self) -> tuple[str, int, int, bool]:
        """All claims of it go into one entry of a request."""
        return self.transactional_id, self.producer_id, self.producer_epoch, not self.adds


NOBODY_COULD_SAY: Final = (
    NetworkError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
"""The coordinator is moving, or cannot be reached."""
Answer: TypeAlias = Callable[[HoldfastError | None], None]
"""None: it is. InvalidProducerEpochError, InvalidTxnStateError, TransactionAbortableError: it is not. Errors of
coordinators, NetworkError and ConcurrentTransactionsError: nobody could say."""


class VerificationHost(PeersHost, Protocol):
    """What verification asks of the broker."""

    metadata: MetadataCache


class TxnVerification:
    """See the module's docstring."""

    def __init__(self, broker: VerificationHost) -> None:
        self._broker = broker
        self._peers = Peers(broker, "transactions")
        self._lines: dict[BrokerId, _Line] = {}

    def ask(self, claim: PartitionClaim, done: Answer) -> None:
        """``done`` is called once, later, on the loop."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RETRY_MAX_S

        def answered(error: HoldfastError | None) -> None:
            passes = isinstance(error, (ConcurrentTransactionsError, *NOBODY_COULD_SAY))
            if passes and claim.adds and loop.time() + RETRY_S <= until_s:
                loop.call_later(RETRY_S, self._send, claim, answered)
            else:
                done(error)

        self._send(claim, answered)

    def _send(self, claim: PartitionClaim, done: Answer) -> None:
        coordinator = self._coordinator(claim.transactional_id)
        if coordinator is None:
            why = f"the coordinator of transactional id {claim.transactional_id!r} is not known"
            asyncio.get_running_loop().call_soon(done, CoordinatorNotAvailableError(why))
            return
        line = self._lines.get(coordinator)
        if line is None:
            line = self._lines[coordinator] = _Line(self._peers, coordinator)
        line.add(claim, done)

    def _coordinator(self, transactional_id: str) -> BrokerId | None:
        metadata = self._broker.metadata
        partitions = metadata.topics.get(TRANSACTIONS_TOPIC)
        if not partitions:
            return None
        info = partitions.get(partition_for(transactional_id, len(partitions)))
        return None if info is None else info.leader

    def close(self) -> None:
        """The broker is ending."""
        for line in self._lines.values():
            line.close()
        self._peers.close()


class _Line:
    """What waits for one coordinator."""

    def __init__(self, peers: Peers, broker_id: BrokerId) -> None:
        self._peers = peers
        self._broker_id = broker_id
        self._waiting: list[tuple[PartitionClaim, Answer]] = []
        self._sender: asyncio.Task[None] | None = None

    def add(self, claim: PartitionClaim, done: Answer) -> None:
        if len(self._waiting) >= MAX_WAITING:
            why = f"{MAX_WAITING} claims wait for broker {self._broker_id}"
            asyncio.get_running_loop().call_soon(done, CoordinatorNotAvailableError(why))
            return
        self._waiting.append((claim, done))
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked = self._next()
                try:
                    response = await self._peers.ask(self._broker_id, _request(asked), REQUEST_TIMEOUT_S)
                    _tell(asked, response)
                except HoldfastError as e:
                    self._fail(asked, NetworkError(f"broker {self._broker_id}: {e}"))
                except Exception as e:
                    log.exception("AddPartitionsToTxn to broker %d failed", self._broker_id)
                    self._fail(asked, UnknownServerError(str(e)))
        finally:
            self._sender = None

    def _next(self) -> list[tuple[PartitionClaim, Answer]]:
        """What goes into the next request: of each transactional id one transaction, for the answer tells the id."""
        taken: dict[str, tuple[str, int, int, bool]] = {}
        now: list[tuple[PartitionClaim, Answer]] = []
        later: list[tuple[PartitionClaim, Answer]] = []
        for each in self._waiting:
            claim = each[0]
            fits = claim.transactional_id in taken or len(taken) < MAX_TRANSACTIONS
            if fits and taken.setdefault(claim.transactional_id, claim.transaction) == claim.transaction:
                now.append(each)
            else:
                later.append(each)
        self._waiting = later
        return now

    def _fail(self, asked: Sequence[tuple[PartitionClaim, Answer]], error: HoldfastError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in (*asked, *waiting):
            _say(done, error)


def _say(done: Answer, error: HoldfastError | None) -> None:
    """One that fails on its answer keeps nobody else from theirs."""
    try:
        done(error)
    except Exception:
        log.exception("an answer of a transaction coordinator could not be taken")


def _request(asked: Sequence[tuple[PartitionClaim, Answer]]) -> Any:
    transactions: dict[tuple[str, int, int, bool], dict[str, set[int]]] = {}
    for claim, _ in asked:
        tp = claim.topic_partition
        transactions.setdefault(claim.transaction, {}).setdefault(tp.topic, set()).add(tp.partition)
    return build(
        request_type(ApiKey.ADD_PARTITIONS_TO_TXN, VERSION),
        {
            "transactions": [
                {
                    "transactional_id": transactional_id,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "verify_only": verify_only,
                    "topics": [{"name": name, "partitions": sorted(found)} for name, found in topics.items()],
                }
                for (transactional_id, producer_id, epoch, verify_only), topics in transactions.items()
            ]
        },
    )


def _tell(asked: Sequence[tuple[PartitionClaim, Answer]], response: Any) -> None:
    top = int(response.error_code)
    results = {
        (result.transactional_id, topic.name, p.partition_index): int(p.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for p in topic.results_by_partition
    }
    for claim, done in asked:
        tp = claim.topic_partition
        code = top or results.get((claim.transactional_id, tp.topic, tp.partition))
        if code is None:
            _say(done, UnknownServerError(f"the coordinator did not answer for {tp}"))
        else:
            _say(done, _meaning(code))


def _meaning(code: int) -> HoldfastError | None:
    if code == _CLUSTER_AUTHORIZATION_FAILED:
        return InvalidTxnStateError("this broker may not ask transaction coordinators")
    error = error_of(code)
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError("a newer producer has this transactional id")
    return error
